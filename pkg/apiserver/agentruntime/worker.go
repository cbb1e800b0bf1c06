// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

const (
	// setupsAtOnce is how many sandboxes a server sets up again at a time. A namespace has
	// as many of them as it leaves to others.
	setupsAtOnce = 512
	// lastTry is how much time must be left for another try at an agent-runtime that is not reachable.
	lastTry = 10 * time.Second
	// writeTimeout bounds one write of how it went.
	writeTimeout = 10 * time.Second
)

// writeBackoff is how writes that fail are tried again, at the end every Cap, until there
// is no need any more.
var writeBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: time.Second}

// obsoleteBackoff is how work is tried again that seemed obsolete, until an event says that it is. If
// none does, what was read of the sandbox was out of date.
var obsoleteBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 9, Cap: time.Minute}

// unreachableBackoff is how an agent-runtime is tried again that is not reachable: it may be starting.
var unreachableBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 5, Cap: 4 * time.Second}

// Worker sets up the agent-runtimes of sandboxes that are resumed, and gives those of pools
// their access tokens. It is level-triggered: what is to be done is in the sandboxes, and what
// it remembers can be lost. Each sandbox is the work of one server, by a hash that all agree
// on, and of others when that is gone.
//
// Feed it with SandboxesListed, SandboxChanged and SandboxDeleted, from one goroutine.
type Worker struct {
	setup *Setup
	// change changes a sandbox as it is in the store.
	change Change
	clock  clock.PassiveClock
	slots  *fairness.Slots

	mu sync.Mutex
	// ctx is nil before Run.
	ctx     context.Context
	running sync.WaitGroup
	byUID   map[types.UID]*job
	// self and servers are the names of the servers; self is "" as long as it is not known.
	self    string
	servers []string
	// changes counts how often the servers have changed.
	changes int
	// mine reports whether the work on a sandbox is this server's, and mineOfPools whether that on
	// one which uses the token of a pool is; nil is all.
	mine, mineOfPools func(namespace, name string) bool
}

// Change changes a sandbox in the store, by a function that is given it as it is there and
// may be called more than once. An error of that is returned, and ErrObsolete where the
// sandbox is gone.
type Change func(ctx context.Context, namespace, name string, change func(*v1alpha1.Sandbox) error) error

// job is a sandbox whose runtime is to be set up.
type job struct {
	sb  *v1alpha1.Sandbox
	run podRun
	// cancel ends the work on it; nil while there is none.
	cancel context.CancelFunc
}

// podRun distinguishes one pod of a sandbox, one run of its containers and one resume from all others.
type podRun struct {
	// inPool: the sandbox is in a pool.
	inPool bool
	// restarts distinguishes the runs of its containers; as long as it is not known it is 0, so that
	// work may begin anew for nothing.
	restarts   int32
	pod        types.UID
	ip         string
	generation int64
	since      time.Time
}

// ErrObsolete leaves a change where the sandbox is gone, or does not wait for its
// agent-runtime any more as it did.
var ErrObsolete = errors.New("the sandbox is gone, or does not wait for its agent-runtime any more")

// NewWorker returns a Worker that writes by change.
func NewWorker(setup *Setup, change Change, clk clock.PassiveClock) *Worker {
	return &Worker{setup: setup, change: change, clock: clk, slots: fairness.NewSlots(setupsAtOnce, setupsAtOnce), byUID: map[types.UID]*job{}}
}

// Run works until ctx is done, and returns when it has stopped.
func (r *Worker) Run(ctx context.Context) {
	r.mu.Lock()
	r.ctx = ctx
	r.beginAll()
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock() // nothing begins after that
	r.ctx = nil
	r.mu.Unlock()
	r.running.Wait()
}

// MembersChanged sets which servers, by name, use the same store, self among them. nil is this one
// alone. Those that do not know the tokens of pools do nothing at sandboxes with such tokens, so
// these are shared by the others.
func (r *Worker) MembersChanged(self string, servers []string) {
	knowing := slices.DeleteFunc(slices.Clone(servers), func(name string) bool { return !KnowsPoolTokens(name) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.self, r.servers = self, servers
	r.mine, r.mineOfPools = poolindex.Share(self, servers), poolindex.Share(self, knowing)
	r.changes++
	r.beginAll()
}

// SandboxesListed takes in all sandboxes.
func (r *Worker) SandboxesListed(all []*v1alpha1.Sandbox) {
	listed := map[types.UID]bool{}
	for _, sb := range all {
		if _, awaits := podRunOf(sb); awaits {
			listed[sb.UID] = true
		}
		r.SandboxChanged(sb)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.byUID {
		if !listed[uid] {
			r.forget(uid)
		}
	}
}

// SandboxChanged takes in the current state of a sandbox.
func (r *Worker) SandboxChanged(sb *v1alpha1.Sandbox) {
	its, awaits := podRunOf(sb)
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.byUID[sb.UID]
	if known != nil && awaits && known.run == its {
		known.sb = sb
		return
	}
	r.forget(sb.UID)
	if awaits {
		r.byUID[sb.UID] = &job{sb: sb, run: its}
		r.begin(r.byUID[sb.UID])
	}
}

// SandboxDeleted takes in that a sandbox is gone.
func (r *Worker) SandboxDeleted(sb *v1alpha1.Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(sb.UID)
}

// forget ends the work on a sandbox.
func (r *Worker) forget(uid types.UID) {
	if known := r.byUID[uid]; known != nil {
		if known.cancel != nil {
			known.cancel()
		}
		delete(r.byUID, uid)
	}
}

func (r *Worker) beginAll() {
	for _, known := range r.byUID {
		r.begin(known)
	}
}

// begin begins the work on a sandbox, if it is this server's and has not begun.
func (r *Worker) begin(known *job) {
	if r.ctx == nil || r.ctx.Err() != nil || r.self == "" || known.cancel != nil || !r.isMine(known.sb) {
		return
	}
	ctx, cancel := context.WithCancel(r.ctx)
	known.cancel = cancel
	changes := r.changes
	w := work{Worker: r, sb: known.sb, run: known.run, mark: markOf(r.self, known.run)}
	r.running.Go(func() {
		defer cancel()
		err := obsoleteBackoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			w.sb = r.current(known)
			if err := w.do(ctx); !errors.Is(err, ErrObsolete) {
				return true, err
			}
			return false, nil
		})
		r.ended(known, changes, err)
	})
}

// current returns a sandbox as it was reported last.
func (r *Worker) current(known *job) *v1alpha1.Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	return known.sb
}

// ended takes in that the work on a sandbox has ended, which began after so many changes of the
// servers. An error that may pass does not end it.
func (r *Worker) ended(known *job, changes int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.byUID[known.sb.UID] != known: // it was forgotten
	case errors.Is(err, errMountedElsewhere):
		known.cancel = nil // until the servers change
		if r.changes != changes {
			r.begin(known)
		}
	case err == nil:
		delete(r.byUID, known.sb.UID) // an event that says that it waits still, or again, begins anew
	}
}

// isMine reports whether the work on a sandbox is this server's.
func (r *Worker) isMine(sb *v1alpha1.Sandbox) bool {
	mine := r.mine
	if usesPoolToken(sb) || claims.AwaitsSetupAfterRestart(&sb.Status) { // which other servers know neither
		mine = r.mineOfPools
	}
	return mine == nil || mine("", string(sb.UID))
}

// lives reports whether a server is there, as far as is known.
func (r *Worker) lives(server string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.servers == nil || slices.Contains(r.servers, server)
}

// podRunOf returns what a sandbox waits for, and reports whether it waits for its runtime
// to be set up again, or for the token of its pool.
func podRunOf(sb *v1alpha1.Sandbox) (podRun, bool) {
	isReady := sb.Status.Phase == v1alpha1.SandboxRunning && meta.IsStatusConditionTrue(sb.Status.Conditions, v1alpha1.SandboxConditionReady)
	if isReady && !v1alpha1.IsInPool(sb) || sb.Status.PodInfo.PodIP == "" || sb.DeletionTimestamp != nil || !claims.SetupPending(&sb.Status) {
		return podRun{}, false
	}
	its := podRun{pod: sb.Status.PodInfo.PodUID, ip: sb.Status.PodInfo.PodIP, restarts: ptr.Deref(sb.Status.PodInfo.RestartCount, 0)}
	if claims.AwaitsPoolSetup(sb) {
		its.inPool = true
		its.since = meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionReady).LastTransitionTime.UTC()
		return its, true
	}
	c := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized)
	its.generation, its.since = c.ObservedGeneration, c.LastTransitionTime.UTC()
	return its, (sb.Status.Phase == v1alpha1.SandboxResuming || claims.AwaitsSetupAfterRestart(&sb.Status)) && claims.SetsUpAgain(sb)
}

// work is the work on one sandbox.
type work struct {
	*Worker
	sb   *v1alpha1.Sandbox
	run  podRun
	mark string
}

// do sets up the runtime, and writes how that went.
func (w *work) do(ctx context.Context) error {
	if w.run.inPool {
		return w.runInPool(ctx)
	}
	_ = w.setup.ensureVersion(ctx, w.sb) // SetUpAgain returns the error. This may wait long, so it is done before a slot is taken
	var err error
	waited := unreachableBackoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err = w.setUpAgain(ctx)
		isLate := claims.SetupAgainLeft(&w.sb.Status, w.clock.Now()) < lastTry
		return isLate || !errors.Is(err, errUnreachable), nil
	})
	if waited != nil {
		return waited
	}
	if ctx.Err() != nil || errors.Is(err, errMountedElsewhere) || errors.Is(err, ErrObsolete) {
		return err
	}
	return w.writeOutcome(ctx, outcome(err))
}

// setUpAgain tries once to set up the runtime, when the namespace gets a slot.
func (w *work) setUpAgain(ctx context.Context) error {
	release, err := w.slots.Wait(ctx, w.sb.Namespace)
	if err != nil {
		return err
	}
	defer release()
	return w.setup.SetUpAgain(ctx, w.sb, w.mounting)
}

// outcome is what is reported of an error.
func outcome(err error) *claims.SetupError {
	if err == nil {
		return nil
	}
	if failed, ok := errors.AsType[*claims.SetupError](err); ok {
		return failed
	}
	return &claims.SetupError{
		Condition: v1alpha1.SandboxConditionRuntimeInitialized, Reason: v1alpha1.ReasonRuntimeInitFailed, Message: err.Error(),
	}
}

// writeOutcome writes how the setup went.
func (w *work) writeOutcome(ctx context.Context, failed *claims.SetupError) error {
	return w.write(ctx, func(sb *v1alpha1.Sandbox) error {
		claims.EndSetupAgain(&sb.Status, failed, w.clock.Now())
		delete(sb.Annotations, v1alpha1.AnnotationMounting)
		return nil
	})
}

// write changes the sandbox, if it still waits for what this is the work for. Errors of
// the store are tried again.
func (w *work) write(ctx context.Context, change func(*v1alpha1.Sandbox) error) error {
	var last error
	return writeBackoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		within, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		last = w.change(within, w.sb.Namespace, w.sb.Name, func(sb *v1alpha1.Sandbox) error {
			its, awaits := podRunOf(sb)
			if sb.UID != w.sb.UID || !awaits || its != w.run {
				return ErrObsolete
			}
			return change(sb)
		})
		if errors.Is(last, ErrObsolete) || errors.Is(last, errMountedElsewhere) {
			return false, last
		}
		if failed, ok := errors.AsType[*claims.SetupError](last); ok {
			return false, failed
		}
		if last != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(last, "Failed to write how an agent-runtime was set up, retrying", "sandbox", klog.KObj(w.sb))
		}
		return last == nil, nil
	})
}
