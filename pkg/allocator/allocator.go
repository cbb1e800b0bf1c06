// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"time"

	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// Options set up an Allocator.
type Options struct {
	// Store is where claims and sandboxes are kept.
	Store Store
	// Clock tells the time; the real one if nil.
	Clock clock.WithTicker
	// SyncWindow is how long a create call waits for its claim to complete
	// before it answers Claiming. It should end well before 60 s, where
	// kube-apiserver cuts proxied requests.
	SyncWindow time.Duration
	// RetryAfter is what a claim that fails for shortage is told; 1 s if 0.
	RetryAfter time.Duration
	// CommitTimeout bounds one transaction; 10 s if 0.
	CommitTimeout time.Duration
	// ResolveTimeout bounds finding out what became of a transaction that was
	// not answered; 15 s if 0.
	ResolveTimeout time.Duration
	// Admit judges the sandboxes that are about to be made for a claim, and may
	// change them, as the API does with all that is created; nil lets all pass. The
	// claim is not to be changed.
	Admit func(ctx context.Context, claim *v1alpha1.SandboxClaim, made []*v1alpha1.Sandbox) error
}

// Allocator binds sandboxes to claims, in the call and in the background.
type Allocator struct {
	options Options
	store   Store
	index   *poolindex.Index
	catalog catalog
	// late finds templates for claims that are served from a pool.
	late podtemplate.Lookup
	// templates remembers patched pod templates.
	templates *podtemplate.Cache
	sizes     *sizes
	queue     *queue
	aside     aside
	feed      *poolindex.Feed
	flights   flights
	jobs      jobs
	lag       lag
}

// New returns an Allocator. It serves calls at once; what is left to do in the
// background is done while Run runs.
func New(o Options) *Allocator {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.RetryAfter = orDefault(o.RetryAfter, time.Second)
	o.CommitTimeout = orDefault(o.CommitTimeout, 10*time.Second)
	o.ResolveTimeout = orDefault(o.ResolveTimeout, 15*time.Second)
	registerMetrics()
	a := &Allocator{
		options: o, store: observedStore{o.Store, o.Clock}, index: poolindex.New(),
		templates: podtemplate.NewCache(), sizes: newSizes(), lag: lag{clock: o.Clock},
	}
	a.late = newLateLookup(a.store, o.Clock, a.jobs.background)
	a.queue = newQueue(a.index)
	a.feed = poolindex.NewFeed(a.index, a.queue, o.Clock.Now)
	a.jobs.init(o.Clock)
	return a
}

// Create stores a claim that was admitted, with the sandboxes that it asks for,
// and returns it as stored.
//
// What can be bound at once is in the first transaction. A claim that needs
// more waits, in the order in which claims came, for the sync window and never
// beyond ctx; then it is returned as it stands, Claiming, and goes on in the
// background. A ctx that is done before the first transaction costs nothing;
// afterwards it only ends the waiting.
//
// Errors: ErrClaimExists, ErrSetNotFound, *ShortageError, *RefusedError, ErrTooLarge,
// those of Options.Admit (nothing was written in all these cases), ErrUnknownOutcome, the
// error of ctx, and those of the store.
func (a *Allocator) Create(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	ctx, answered := a.observeCreate(ctx, claim)
	created, err := a.create(ctx, claim)
	answered(created, err)
	return created, err
}

func (a *Allocator) create(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	j, err := a.newJob(claim.DeepCopy(), a.options.Clock.Now())
	if err != nil {
		return nil, err
	}
	if err := j.open(ctx); err != nil {
		return nil, a.unlessExists(ctx, claim, err)
	}
	if j.finished() {
		return j.claim, nil
	}
	canWait := !j.hopeless()
	switch started := a.start(ctx, j); {
	case !started:
		j.letGo() // nobody goes on with it here
	case canWait:
		a.await(ctx, j)
	}
	return j.published.Load().DeepCopy(), nil
}

// PeersChanged says which servers, by name, allocate from the same store, self
// among them, so that each can begin with a share of its own. nil is this one
// alone.
func (a *Allocator) PeersChanged(self string, servers []string) {
	a.index.Prefer(poolindex.Share(self, servers))
}

// IndexBehind is for how long the index has been waiting to hear of a sandbox
// that this server wrote; 0 if it has heard of all of them.
func (a *Allocator) IndexBehind() time.Duration { return a.lag.behind() }

// await waits for the job's end within the sync window, and not beyond ctx,
// less what is needed to answer in time.
func (a *Allocator) await(ctx context.Context, j *job) {
	_, span := tracing.Start(ctx, "Wait for sandboxes")
	defer span.End(slow)
	window := a.options.SyncWindow
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(a.options.Clock.Now())
		window = min(window, left-min(left/5, time.Second))
	}
	timer := a.options.Clock.NewTimer(max(0, window))
	defer timer.Stop()
	select {
	case <-j.done:
	case <-timer.C():
	case <-ctx.Done():
	}
}

// detached returns a context that outlives the request: once a transaction is on
// its way it is seen through, so that a caller who leaves cannot make its
// outcome unknown.
func (a *Allocator) detached(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}
