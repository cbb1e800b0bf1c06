// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/warning"
	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// Options set up an Allocator.
type Options struct {
	// Store is where claims and sandboxes are kept.
	Store Store
	// Clock tells the time; the real one if nil.
	Clock clock.WithTicker
	// SyncWindow is how long a create call waits for its claim to complete before it
	// answers Claiming. It should end well before 60 s, where kube-apiserver cuts proxied
	// requests.
	SyncWindow time.Duration
	// MaxWaiting is how many claims of a namespace may wait for sandboxes; what comes
	// then is refused if it would have to wait. 0 is no limit.
	MaxWaiting int
	// MaxWaitingCreates is how many create calls wait at a time. Others are answered
	// Claiming at once, and their claims wait without them. 0 is no limit.
	MaxWaitingCreates int
	// RetryAfter is what a claim that fails for shortage is told, or because too many
	// wait; 1 s if 0.
	RetryAfter time.Duration
	// CommitTimeout bounds one transaction; 10 s if 0.
	CommitTimeout time.Duration
	// ResolveTimeout bounds finding out what became of a transaction that was not
	// answered; 15 s if 0.
	ResolveTimeout time.Duration
	// MaxFresh is how many sandboxes one claim may hold at a time that were made for it,
	// where neither set nor template says.
	MaxFresh int
	// MaxFreshBytes is how many bytes these sandboxes may have, as they are stored.
	MaxFreshBytes int64
	// PodMetadata says which labels and annotations of claims reach pods where neither the
	// SandboxSet nor the SandboxTemplate says so; nil lets all through.
	PodMetadata *v1alpha1.PodMetadataPolicy
	// Admit judges the sandboxes that are about to be made for a claim, and may change
	// them, as the API does with all that is created; nil lets all pass. The claim is not
	// to be changed. charge is how many of them a quota has to be charged for: the others
	// use up charges for sandboxes that were admitted earlier and never created.
	Admit func(ctx context.Context, claim *v1alpha1.SandboxClaim, made []*v1alpha1.Sandbox, charge int) error
	// SetUp sets up the agent-runtime of a sandbox that a claim holds: envVars and access
	// token, and then the volumes to mount, in order. It ends with ctx, and does what can be
	// tried again by itself. A *claims.SetupError says that this sandbox cannot be set up,
	// and any other error that it was not. Where it is nil, a claim whose sandboxes have an
	// agent-runtime ends with an error.
	SetUp func(ctx context.Context, claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) error
	// Seal returns what is kept on the sandboxes of a claim, encrypted, for SetUp to be
	// repeated, and the version of the key that SetUp uses for them; nil keeps nothing.
	Seal func(claim *v1alpha1.SandboxClaim) (request, keyVersion string, err error)
	// LabelDomains are the domains of the labels that claims of agent-sandbox may put on
	// their pods; validation.DefaultLabelDomain if empty.
	LabelDomains []string
	// WithoutObservations: claims of agent-sandbox get no annotations that say when they
	// were seen and ready, and in which trace.
	WithoutObservations bool
}

// Allocator binds sandboxes to claims, in the call and in the background.
type Allocator struct {
	options   Options
	planner   *planner
	committer *committer
	// reconciler does what is left to do in the background: finisher, metadata and rebinder.
	reconciler *reconciler
	finisher   *finisher
	metadata   *metadataSyncer
	rebinder   *rebinder
	stock      *stock
	feeds      *Feeds
	lag        *lag
	// waiting is how many create calls wait.
	waiting atomic.Int64
}

// New returns an Allocator. It serves calls at once; what is left to do in the
// background is done while Run runs.
func New(o Options) *Allocator {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.MaxWaiting = cmp.Or(o.MaxWaiting, math.MaxInt)
	o.MaxWaitingCreates = cmp.Or(o.MaxWaitingCreates, math.MaxInt)
	o.RetryAfter = cmp.Or(o.RetryAfter, time.Second)
	o.CommitTimeout = cmp.Or(o.CommitTimeout, 10*time.Second)
	o.ResolveTimeout = cmp.Or(o.ResolveTimeout, 15*time.Second)
	if len(o.LabelDomains) == 0 {
		o.LabelDomains = []string{validation.DefaultLabelDomain}
	}
	registerMetrics()
	a := &Allocator{options: o, lag: &lag{clock: o.Clock}, reconciler: newReconciler(o.Clock)}
	store := observedStore{o.Store, o.Clock}
	index := poolindex.New()
	lines := queue.New(index, o.Clock)
	a.stock = &stock{
		store: store, index: index, queue: lines, feed: poolindex.NewFeed(index, lines, o.Clock.Now), reads: newSharedReads(), timeout: o.ResolveTimeout,
		setChanged: func(change setChange) { a.feeds.setChanged(change) },
		confirm:    func(ctx context.Context, sources []queue.Source) error { return a.finisher.confirm(ctx, sources) },
	}
	late := newLateLookup(store, o.Clock, func(f func(context.Context)) bool { return a.reconciler.background(f) })
	a.planner = &planner{
		templates: &templates{
			cache: podtemplate.NewCache(), sizes: newSizes(), revisions: newSetRevisions(), maxFresh: o.MaxFresh, maxFreshBytes: o.MaxFreshBytes, late: late,
			podMetadata: o.PodMetadata, labelDomains: o.LabelDomains,
		},
		stock: a.stock, clock: o.Clock, admit: o.Admit, seal: o.Seal,
	}
	a.committer = &committer{
		store: store, clock: o.Clock, queue: lines, sets: &a.stock.sets, lag: a.lag, throttles: newThrottles(),
		commitTimeout: o.CommitTimeout, resolveTimeout: o.ResolveTimeout,
	}
	a.finisher = newFinisher(a.reconciler, a.planner, a.committer, o.SyncWindow, o.SetUp)
	a.metadata = newMetadataSyncer(a.reconciler, a.finisher.passer)
	a.rebinder = newRebinder(a.reconciler, a.committer)
	a.reconciler.subreconcilers = []subreconciler{
		a.finisher, newLimited(a.rebinder, rebindsAtOnce, a.reconciler), newLimited(a.metadata, metadataSyncsAtOnce, a.reconciler),
	}
	a.feeds = &Feeds{stock: a.stock, known: a.finisher.known, metadata: a.metadata, rebinder: a.rebinder, lag: a.lag}
	return a
}

// Run finishes claims in the background until ctx is done, and returns when
// everything it started has stopped. Claims that are unfinished then are taken up by
// the next server that runs.
func (a *Allocator) Run(ctx context.Context) {
	defer live.add(a)()
	a.reconciler.run(ctx, a.finisher.tick)
}

// Feeds returns what the watches are to tell of.
func (a *Allocator) Feeds() *Feeds { return a.feeds }

// PeersChanged says which servers, by name, allocate from the same store, self among
// them, so that each can begin with a share of its own, and works at a share of the
// unfinished claims. nil is this one alone.
func (a *Allocator) PeersChanged(self string, servers []string) {
	prefers := poolindex.Share(self, servers)
	a.stock.index.Prefer(prefers)
	a.reconciler.prefers.Store(&prefers)
	a.finisher.peers.Store(&peers{self: self, servers: servers})
	a.finisher.known.wake()
	a.metadata.wake()
	a.rebinder.wake()
}

// IndexBehind is for how long the index has been waiting to hear of a sandbox that
// this server wrote; 0 if it has heard of all of them.
func (a *Allocator) IndexBehind() time.Duration { return a.lag.behind() }

// Create stores a claim that was admitted, with the sandboxes that it asks for, and
// returns it as stored.
//
// What can be bound at once is in the first transaction. A claim that needs more
// waits, in the order in which claims came, for the sync window and never beyond ctx;
// then it is returned as it stands, Claiming, and goes on in the background. A ctx that
// is done before the first transaction costs nothing; afterwards it only ends the
// waiting.
//
// Errors: ErrClaimExists, ErrSetNotFound, *MismatchError, *ShortageError, *TooManyWaitingError,
// *RefusedError, ErrTooLarge, *ThrottledError, those of Options.Admit (nothing was written in all these cases), ErrUnknownOutcome,
// the error of ctx, and those of the store.
func (a *Allocator) Create(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	ctx, answered := observeCreate(ctx, a.options.Clock, &a.stock.sets, claim)
	created, err := a.create(ctx, claim)
	answered(created, err)
	return created, err
}

func (a *Allocator) create(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	now := a.options.Clock.Now()
	claim = a.options.observed(ctx, claim, now)
	known := a.finisher.known
	u := known.open(ctx, claim, now)
	stored, waits, err := a.first(ctx, u, claim, now)
	if err != nil || !claims.Unfinished(stored) {
		known.forget(u, claim.UID)
		if err == nil {
			a.warn(ctx, claim, u)
		}
		return stored, a.refusal(ctx, claim, err)
	}
	a.finisher.setUpRuntimes(u)
	known.begin(u, claim.UID)
	if waits && a.reconciler.isRunning() {
		a.await(ctx, u)
	}
	a.warn(ctx, claim, u)
	return u.latest().DeepCopy(), nil
}

// warn tells the client of a claim what of it does not reach its sandboxes.
func (a *Allocator) warn(ctx context.Context, claim *v1alpha1.SandboxClaim, u *unfinished) {
	warnOfHeldBack(ctx, u.keptFromPods())
	warnOfRuntimes(ctx, claim, u.runtimeless())
}

// toldHeldBack is how many fields one warning names.
const toldHeldBack = 5

// warnOfHeldBack tells the client which of its labels and annotations are not on all of
// the pods.
func warnOfHeldBack(ctx context.Context, fields []string) {
	if len(fields) == 0 {
		return
	}
	told := strings.Join(fields[:min(len(fields), toldHeldBack)], ", ")
	if more := len(fields) - toldHeldBack; more > 0 {
		told += fmt.Sprintf(" and %d more", more)
	}
	warning.AddWarning(ctx, "", told+": on the sandboxes, but not on all of their pods: "+
		"held back by a podMetadataPolicy, by the default of the installation, or because the pod template says otherwise")
}

// first writes the claim's first state, with what can be bound now, or fails and
// leaves nothing behind. It reports whether it is worth waiting for more.
func (a *Allocator) first(ctx context.Context, u *unfinished, claim *v1alpha1.SandboxClaim, now time.Time) (*v1alpha1.SandboxClaim, bool, error) {
	t := &turn{planner: a.planner, hand: &u.work.hand, state: plan.State{Claim: claim, New: true, Start: now}}
	t.state.Setups, _ = a.finisher.setupsOf(u, nil)
	detached := false
	for {
		if err := ctx.Err(); err != nil {
			return nil, false, err // a caller that is gone costs nothing
		}
		p, err := t.plan(ctx)
		if err != nil {
			return nil, false, err
		}
		if err := a.join(u, &t.state.Eligible, p); err != nil {
			return nil, false, err
		}
		stored, err := a.committer.write(ctx, true, p, t.hand)
		if err != nil {
			a.stock.queue.Leave(u.waiter) // or the next plan would be behind it
		}
		if errors.Is(err, errNotWritten) && !detached {
			// It was on its way, and is seen through also if the caller has left.
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), a.options.ResolveTimeout)
			defer cancel()
			detached = true
		}
		if errors.Is(err, errAgain) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if stored == p.Claim {
			all, _ := p.Sandboxes()
			u.wrote(view{}, stored, all)
		} else {
			u.setClaim(stored) // found out by reading: what it holds has to be read, too
		}
		u.planned(&t.state, p)
		u.work.wrote(p, now)
		return stored, !u.outlook.hopeless, nil
	}
}

// join puts a claim that is about to be stored in line for what it lacks. From then on
// newcomers do not overtake it. One that only waits for its next transaction is not
// refused, however many wait.
func (a *Allocator) join(u *unfinished, e *claims.Eligible, p *plan.Plan) error {
	if p.Wants.Need == 0 || makesTheRest(e, p) {
		return nil
	}
	wants, most := wantsOf(p.Claim, e, p.Wants, 0), a.options.MaxWaiting
	if a.stock.queue.Free(wants.Sources) >= wants.Need {
		most = math.MaxInt
	}
	if !a.stock.queue.Join(u.waiter, wants, most) {
		return &TooManyWaitingError{Namespace: p.Claim.Namespace, Most: a.options.MaxWaiting}
	}
	return nil
}

// makesTheRest reports whether what a claim lacks after a plan is made for it.
func makesTheRest(e *claims.Eligible, p *plan.Plan) bool {
	return claims.CreatesOnNoStock(p.Claim) && e.CanMake() && p.Broken == nil
}

// refusal is what the client is told when its claim could not be created.
func (a *Allocator) refusal(ctx context.Context, claim *v1alpha1.SandboxClaim, err error) error {
	if errors.Is(err, etcdtxn.ErrTooLarge) && !errors.Is(err, ErrTooLarge) {
		err = fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	if short := (*ShortageError)(nil); errors.As(err, &short) {
		short.RetryAfter = a.options.RetryAfter
	}
	if tooMany := (*TooManyWaitingError)(nil); errors.As(err, &tooMany) {
		tooMany.RetryAfter = a.options.RetryAfter
	}
	return a.unlessExists(ctx, claim, err)
}

// unlessExists returns ErrClaimExists in the place of a refusal if the claim's name is
// taken: who tries again, because the first answer was lost, must not be told that
// nothing was bound.
func (a *Allocator) unlessExists(ctx context.Context, claim *v1alpha1.SandboxClaim, err error) error {
	var shortage *ShortageError
	var tooMany *TooManyWaitingError
	var refused *RefusedError
	var mismatch *MismatchError
	var throttled *ThrottledError
	if !errors.As(err, &throttled) && !errors.As(err, &shortage) && !errors.As(err, &tooMany) && !errors.As(err, &refused) && !errors.As(err, &mismatch) && !errors.Is(err, ErrSetNotFound) {
		return err
	}
	stored, readErr := a.planner.stock.store.Claim(ctx, claim.Namespace, claim.Name)
	switch {
	case readErr != nil:
		return readErr
	case stored != nil:
		return ErrClaimExists
	}
	return err
}

// await waits for the claim's end within the sync window, and not beyond ctx, less
// what is needed to answer in time. Each call that waits holds a seat that others need,
// so with too many of them it does not wait: those who came before are served before.
func (a *Allocator) await(ctx context.Context, u *unfinished) {
	defer a.waiting.Add(-1)
	if a.waiting.Add(1) > int64(a.options.MaxWaitingCreates) {
		return
	}
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
	case <-u.done:
	case <-timer.C():
	case <-ctx.Done():
	}
}

// Preview returns what Create would return now, and writes and takes nothing. A claim
// that would have to wait is shown Claiming with what it would have got. Errors:
// ErrSetNotFound, *RefusedError and *ShortageError, as from Create, and the store's.
func (a *Allocator) Preview(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	now := a.options.Clock.Now()
	claim = a.options.observed(ctx, claim, now)
	t := &turn{planner: a.planner, hand: newHand(), dry: true, state: plan.State{Claim: claim, New: true, Start: now}}
	t.hand.room = claims.Replicas(claim) // all its transactions in one
	p, err := t.plan(ctx)
	if err != nil {
		return nil, a.refusal(ctx, claim, err)
	}
	warnOfRuntimes(ctx, claim, t.marks.WithoutRuntime())
	if n := t.wouldMake; n > 0 {
		if p.Claim.Status.Waiting == nil {
			p.Claim.Status.Waiting = &v1alpha1.ClaimWaiting{}
		}
		p.Claim.Status.Waiting.Starting += int32(n)
		p.Claim.Status.Message += claims.PreviewMessage(n)
	}
	return p.Claim, nil
}

// Check refuses, as Create would, a claim that would rather fail than wait and finds
// too few sandboxes, or would wait where too many do, or one that takes fresh sandboxes
// only and asks for too many, or adds what its template does not take, or names a pool of
// another template than it does (a *MismatchError). It takes nothing,
// so Create can find less. It is for what should not be done for nothing before that,
// such as charging a quota, which is not given back.
func (a *Allocator) Check(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	fails := claim.Spec.OnShortage == v1alpha1.ShortageFail ||
		!a.stock.queue.HasRoom(claim.Namespace, claim.Annotations[v1alpha1.AnnotationClaimedBy], a.options.MaxWaiting)
	if !fails && claims.TakesWarm(claim) && !bringsAdditional(claim) && !namesBoth(claim) || plan.Expired(claim, a.options.Clock.Now()) {
		return nil
	}
	ctx, answered := observeCreate(ctx, a.options.Clock, &a.stock.sets, claim)
	err := a.check(ctx, claim, fails)
	if err != nil {
		answered(nil, err) // otherwise it is Create that answers
	}
	return err
}

// check finds the refusals of a claim, which fails if there are too few sandboxes for it.
// What cannot be read now is for Create to tell.
func (a *Allocator) check(ctx context.Context, claim *v1alpha1.SandboxClaim, fails bool) error {
	e, err := a.stock.eligible(ctx, claim, true)
	if err != nil {
		return err
	}
	if err := ofOneTemplate(claim, &e); err != nil {
		return a.refusal(ctx, claim, err)
	}
	if err := a.planner.checkMetadata(ctx, claim, &e, true); err != nil {
		return a.refusal(ctx, claim, err)
	}
	if !claims.TakesWarm(claim) {
		if !e.CanMake() {
			return nil
		}
		if model, err := a.planner.surelyRefused(ctx, claim, &e); err == nil && model.refused != nil {
			return a.refusal(ctx, claim, model.refused)
		}
		return nil
	}
	wanted := claims.Replicas(claim)
	if !fails || a.stock.queue.Free(sourcesOf(&e)) >= wanted {
		return nil
	}
	if e, err = a.stock.lookAgain(ctx, claim, e, wanted); err != nil {
		return err
	}
	available := a.stock.queue.Free(sourcesOf(&e))
	if available >= wanted {
		return nil
	}
	switch enough, broken := a.wouldMake(ctx, claim, &e, wanted-available); {
	case enough:
		return nil
	case claim.Spec.OnShortage != v1alpha1.ShortageFail:
		return a.refusal(ctx, claim, &TooManyWaitingError{Namespace: claim.Namespace, Most: a.options.MaxWaiting})
	default:
		return a.refusal(ctx, claim, shortage(claim, &e, wanted, available, broken))
	}
}

// wouldMake reports whether n sandboxes can be made for a claim that is not stored, as far
// as can be seen, and what is in the way of that.
func (a *Allocator) wouldMake(ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, n int) (enough bool, broken error) {
	if !claims.CreatesOnNoStock(claim) || !e.CanMake() {
		return false, nil
	}
	model, err := a.planner.surelyRefused(ctx, claim, e)
	if err == nil && model.broken != nil {
		return false, model.broken
	}
	if err == nil && model.limit.Left(nil) < n {
		return false, model.limit
	}
	return true, nil
}
