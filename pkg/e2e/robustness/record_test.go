// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// change is what a transaction of etcd did to a claim or a sandbox.
type change struct {
	// Revision is that of the transaction.
	Revision int64
	// Seen is when the test saw it.
	Seen time.Duration
	// Resource is sandboxclaims or sandboxes.
	Resource, Namespace, Name string
	// Claim or Sandbox is the new state, and both are nil if the object was deleted.
	Claim   *v1alpha1.SandboxClaim
	Sandbox *v1alpha1.Sandbox
	Created bool
}

// key names the object.
func (c *change) key() string { return c.Resource + "/" + c.Namespace + "/" + c.Name }

// object returns the new state; nil if the object was deleted.
func (c *change) object() metav1.Object {
	switch {
	case c.Claim != nil:
		return c.Claim
	case c.Sandbox != nil:
		return c.Sandbox
	}
	return nil
}

// recorder records all changes of claims and sandboxes, from etcd itself.
type recorder struct {
	client *clientv3.Client
	now    func() time.Duration
	codec  runtime.Codec

	mu      sync.Mutex
	changes []change
	// at is the last revision whose changes are all in changes.
	at  int64
	err error
}

const (
	objectsPrefix = options.EtcdPrefix + "/" + v1alpha1.GroupName + "/"
	// markKey is written by the test itself.
	markKey = "/robustness/mark"
)

// record begins before anything is stored, and ends with the test.
func record(t *testing.T, client *clientv3.Client, now func() time.Duration) *recorder {
	t.Helper()
	r := &recorder{client: client, now: now, codec: apiserver.NewStorageCodec()}
	var running sync.WaitGroup
	running.Go(func() { r.run(t.Context()) })
	t.Cleanup(running.Wait)
	return r
}

func (r *recorder) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.watch(ctx)
		if errors.Is(err, rpctypes.ErrCompacted) {
			r.fail(fmt.Errorf("a revision after %d was compacted before it was recorded: %w", r.position(), err))
			return
		}
		pause(ctx, 50*time.Millisecond)
	}
}

func (r *recorder) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for answer := range r.client.Watch(clientv3.WithRequireLeader(ctx), "/", clientv3.WithPrefix(), clientv3.WithRev(r.position()+1)) {
		if err := answer.Err(); err != nil {
			return err
		}
		seen := r.now()
		r.mu.Lock()
		for _, event := range answer.Events {
			if err := r.add(event, seen); err != nil && r.err == nil {
				r.err = err
			}
		}
		r.at = max(r.at, answer.Header.Revision)
		if n := len(answer.Events); n > 0 {
			r.at = answer.Events[n-1].Kv.ModRevision // without fragments, all of a revision is in one answer
		}
		r.mu.Unlock()
	}
	return nil
}

// add adds an event. r.mu is held.
func (r *recorder) add(event *clientv3.Event, seen time.Duration) error {
	path, ours := strings.CutPrefix(string(event.Kv.Key), objectsPrefix)
	parts := strings.Split(path, "/")
	if !ours || len(parts) != 3 || parts[0] != "sandboxclaims" && parts[0] != "sandboxes" {
		return nil
	}
	c := change{
		Revision: event.Kv.ModRevision, Seen: seen, Created: event.IsCreate(),
		Resource: parts[0], Namespace: parts[1], Name: parts[2],
	}
	if event.Type == clientv3.EventTypePut {
		object, _, err := r.codec.Decode(event.Kv.Value, nil, nil)
		if err != nil {
			return fmt.Errorf("revision %d of %s: %w", c.Revision, event.Kv.Key, err)
		}
		c.Claim, _ = object.(*v1alpha1.SandboxClaim)
		c.Sandbox, _ = object.(*v1alpha1.Sandbox)
	}
	r.changes = append(r.changes, c)
	return nil
}

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// position returns the last revision that is recorded.
func (r *recorder) position() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

// finish returns all changes up to now.
func (r *recorder) finish(t *testing.T) []change {
	t.Helper()
	var until int64
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		put, err := r.client.Put(ctx, markKey, "end")
		if err == nil {
			until = put.Header.Revision
		}
		return err
	})
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if at := r.position(); at < until {
			return fmt.Errorf("revision %d is recorded, %d is stored", at, until)
		}
		return nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		t.Fatalf("recording: %v", r.err)
	}
	return r.changes
}
