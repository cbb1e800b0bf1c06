// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/gateway/flight"
	"github.com/sandlot-io/sandlot/pkg/gateway/lookups"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/podaddress"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

const (
	// readFor limits one read of the API server. It is less than sandboxproxy's limit of a connection
	// to a sandbox, so that errors say which of both took too long.
	readFor = 5 * time.Second
	// maxUnknown is how many ids that do not exist are remembered, and unknownFor how long.
	maxUnknown = 4096
	unknownFor = time.Second
	// maxConcurrentReads is how many unknown ids are looked up at a time. missBurst is how many
	// ids that do not exist are looked up for one source at once, and missesPerSecond how many
	// more each second: clients ask for sandboxes that have ended as well.
	maxConcurrentReads         = 16
	missBurst, missesPerSecond = 200, 50
	// maxTeams bounds the teams whose limit is remembered. One that was forgotten begins anew.
	maxTeams = 16384
)

// Options are what a Table is made with.
type Options struct {
	// AllowLoopback lets sandboxes have loopback addresses, as simulated ones do.
	AllowLoopback bool
	// QPS and Burst limit the questions to the API server a second about the sandboxes of one
	// team: a limit for all teams together would let one hold up the others. Zero is no limit.
	QPS   float32
	Burst int
	// Pods reads the Pods of sandboxes. Without it, only simulated sandboxes have addresses.
	Pods corev1client.PodsGetter
	// Connections end by the changes of sandboxes that the watch reports; nil is none.
	Connections *sandboxproxy.Connections
	// Clock is the time; nil is that of the machine.
	Clock clock.Clock
}

// Table knows the sandboxes of the E2B API, at about 400 bytes each. Run fills it; without
// that, each question is passed on to the API server.
type Table struct {
	client      typed.AgentsV1alpha1Interface
	clock       clock.Clock
	store       *store
	connections *sandboxproxy.Connections

	// unknown are ids that do not exist, with the time until which that counts.
	unknown *lru.Cache
	// lookups reads ids that the watch has not reported.
	lookups *lookups.Group[Route]
	// resolving are the calls of Resolve that share a read of addresses.
	resolving flight.Group[resolved]
	addresses *addressReader
}

// New returns a table that reads through client.
func New(client versioned.Interface, options Options) *Table {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Connections == nil {
		options.Connections = sandboxproxy.NewConnections()
	}
	limit := rate.Limit(options.QPS)
	if limit <= 0 {
		limit = rate.Inf
	}
	return &Table{
		client: client.AgentsV1alpha1(), clock: options.Clock,
		store: newStore(options.Clock, options.Connections), connections: options.Connections, unknown: lru.New(maxUnknown),
		lookups: lookups.New[Route](lookups.Limits{AtOnce: maxConcurrentReads, Misses: missBurst, MissesPerSecond: missesPerSecond, Clock: options.Clock}),
		addresses: &addressReader{
			client: client.AgentsV1alpha1(), allowLoopback: options.AllowLoopback, clock: options.Clock, verifier: podaddress.New(options.Pods),
			limits: fairness.NewLimiters(maxTeams, limit, max(options.Burst, 1)),
			reads:  fairness.NewSlots(maxAddressReads, maxAddressReads),
		},
	}
}

// HasSynced reports whether all sandboxes that were there at the start are known.
func (t *Table) HasSynced() bool { return t.store.hasSynced() }

// Len is how many sandboxes are known.
func (t *Table) Len() int { return t.store.len() }

// Peek returns what the table knows of an id. It makes no request.
func (t *Table) Peek(id string) (Route, bool) { return t.store.find(id) }

// Find returns the route of an id. If the table does not know the id, because another replica created it
// just now, Find reads it from the API server, within the limits of the source of the request. Errors are
// ErrNotFound, ErrUnavailable, or that of ctx.
func (t *Table) Find(ctx context.Context, id string) (Route, error) {
	if route, ok := t.store.find(id); ok {
		return route, nil
	}
	namespace, claim, ok := mapping.ParseSandboxID(id)
	if !ok || t.isUnknown(id) {
		return Route{}, ErrNotFound
	}
	bounded, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	route, err := t.lookups.Do(bounded, id, func(ctx context.Context) (Route, error) {
		return t.readFromAPI(ctx, id, namespace, claim)
	})
	if errors.Is(err, lookups.ErrRefused) || errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnavailable) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return route, err
}
