// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/metadatasync"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/allocator/reconciler"
	"github.com/sandlot-io/sandlot/pkg/allocator/runtimesetup"
	"github.com/sandlot-io/sandlot/pkg/allocator/shortfall"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// unfinishedClaim is a claim that is not at its end, as far as this server knows: what the
// watches have reported of it, or this server's own transactions if those are newer.
type unfinishedClaim struct {
	// key is the name of the claim, and waiter is the claim in the queue.
	key    types.NamespacedName
	waiter *queue.Waiter
	// done is closed when the claim is at its end.
	done chan struct{}
	// work is used by the goroutine that works on the claim.
	work *work

	mu sync.Mutex
	// claim is as stored, the newest that is known; nil before that.
	claim *v1alpha1.SandboxClaim
	start claimStart
	// held are the sandboxes that name the claim as their owner, the newest that is
	// known. One that is gone has a deletionTimestamp.
	held sandboxes
	// complete reports whether held is all there is as of claim, and doubts counts how
	// often that was doubted.
	complete bool
	doubts   int
	// deleted reports whether the claim is gone.
	deleted bool
	outlook outlook
}

// sandboxes are the sandboxes of a claim, by name.
type sandboxes map[string]*v1alpha1.Sandbox

// keep takes in a sandbox, and reports whether it is newer than the known one.
func (s sandboxes) keep(sb *v1alpha1.Sandbox) bool {
	if known := s[sb.Name]; known != nil && poolindex.ParseVersion(known.ResourceVersion) >= poolindex.ParseVersion(sb.ResourceVersion) {
		return false
	}
	s[sb.Name] = sb
	return true
}

// outlook is what a plan says of what may help a claim, and of what it cannot have.
type outlook struct {
	// stuck reports whether a change of any set or template may matter to the claim, and
	// hopeless whether nothing that is on its way can complete it. Who made a claim of
	// agent-sandbox reads what is in its way on it, and is answered at once.
	stuck, hopeless bool
	// notDone is what the plans of this server could not do. Its sets are not changed.
	notDone shortfall.Shortfall
}

// work is what a server remembers of its own work on a claim. All of it can be lost.
type work struct {
	reservation *reservation
	// wroteAt is when the claim was last written.
	wroteAt time.Time
	// notes is the backoff of writes that bind nothing and end nothing.
	notes reconciler.Backoff
	// setups are the runtimes that are set up for the claim.
	setups *runtimesetup.Setups
	// metadata brings changed metadata to what the claim holds; nil if it was not changed.
	metadata *metadatasync.Rollout
	// span is that of the create, in whose trace the work is; nil if there was none here.
	span trace.Span
	// opening is set while the claim is being created. Guarded by unfinishedClaims.mu.
	opening bool
	// mine is set if this server works on the claim, as of its last attempt.
	mine bool
}

func newWork(r *reservation) *work {
	return &work{
		reservation: r,
		setups:      runtimesetup.New(),
		notes:       reconciler.NewBackoff(wait.Backoff{Duration: plan.ProgressInterval, Factor: 2, Steps: 5, Cap: 5 * time.Second}),
	}
}

// holdBack returns for how long a plan must not be written yet. A plan that only counts more
// sandboxes waits, so that a claim of thousands is not written for each of them. A plan that only
// changes texts waits longer and longer, so that texts that keep changing cost few writes. A plan
// that observes a change by the user does not wait.
func (w *work) holdBack(p *plan.Plan, now time.Time) time.Duration {
	switch {
	case p.IsOnlyProgress(w.reservation.room):
		return max(0, w.wroteAt.Add(plan.ProgressInterval).Sub(now))
	case p.ChangesSandboxes() || p.Ends() || p.ObservesSpec():
		return 0
	}
	return max(0, w.notes.Until.Sub(now))
}

// noteWrite notes that a plan was written.
func (w *work) noteWrite(p *plan.Plan, now time.Time) {
	w.wroteAt = now
	if p.ChangesSandboxes() || p.Ends() {
		w.notes.Reset()
	} else {
		w.notes.Start(now)
	}
}

// setClaim sets the state of the claim, and reports whether it is newer than the known one.
func (u *unfinishedClaim) setClaim(claim *v1alpha1.SandboxClaim) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.claim != nil && poolindex.ParseVersion(claim.ResourceVersion) <= poolindex.ParseVersion(u.claim.ResourceVersion) {
		return false
	}
	u.start.set(claim)
	// The server that wrote it may have bound sandboxes to it, which the other watch may not
	// have reported yet.
	u.claim, u.complete = claim, false
	return true
}

// setDeleted takes in that the claim is gone.
func (u *unfinishedClaim) setDeleted() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.deleted = true
}

// setSandbox takes in the state of a sandbox that names the claim as its owner, and
// reports whether it is newer than the known one, and how many such sandboxes there are.
func (u *unfinishedClaim) setSandbox(sb *v1alpha1.Sandbox) (isNewer bool, held int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.held.keep(sb), len(u.held)
}

// setSandboxDeleted takes in that such a sandbox is gone.
func (u *unfinishedClaim) setSandboxDeleted(sb *v1alpha1.Sandbox) {
	gone := *sb
	if gone.DeletionTimestamp == nil {
		gone.DeletionTimestamp = &metav1.Time{Time: sb.CreationTimestamp.Time}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.held.keep(&gone)
}

// owns reports whether a sandbox that names the claim as its owner is one of its
// namespace, and marked as only a claim marks it: what names a claim is for users to
// write.
func (u *unfinishedClaim) owns(sb *v1alpha1.Sandbox) bool {
	return sb.Namespace == u.key.Namespace && sb.Labels[v1alpha1.LabelClaimName] == u.key.Name &&
		sb.Annotations[v1alpha1.AnnotationLock] != ""
}

// markIncomplete records that events may have been lost.
func (u *unfinishedClaim) markIncomplete() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.complete = false
	u.doubts++
}

// setHeld takes in the sandboxes of the claim as they are in the store, which was read
// after it was seen.
func (u *unfinishedClaim) setHeld(seen view, all []*v1alpha1.Sandbox) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before := u.held
	u.held = make(sandboxes, len(all))
	for _, sb := range all {
		if !u.owns(sb) {
			continue
		}
		u.held[sb.Name] = sb
		if known := before[sb.Name]; known != nil {
			u.held.keep(known)
		}
	}
	u.complete = u.complete || u.claim == seen.claim && u.doubts == seen.doubts
}

// setWritten takes in what this server has written, after a plan that was made from what was
// seen, which was complete.
func (u *unfinishedClaim) setWritten(seen view, claim *v1alpha1.SandboxClaim, sandboxes []*v1alpha1.Sandbox) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, sb := range sandboxes {
		if sb.Annotations[v1alpha1.AnnotationOwner] == string(claim.UID) {
			u.held.keep(sb)
		} else {
			delete(u.held, sb.Name)
		}
	}
	if u.claim == nil || poolindex.ParseVersion(u.claim.ResourceVersion) <= poolindex.ParseVersion(claim.ResourceVersion) {
		u.start.set(claim)
		u.claim, u.complete = claim, u.doubts == seen.doubts
	}
}

// recordCreate takes in that this server has created the claim, after a plan, and how it is stored.
func (u *unfinishedClaim) recordCreate(stored *v1alpha1.SandboxClaim, s *plan.State, p *plan.Plan, now time.Time) {
	if stored == p.Claim {
		all, _ := p.Sandboxes()
		u.setWritten(view{}, stored, all)
	} else {
		u.setClaim(stored) // found out by reading: what it holds has to be read, too
	}
	u.recordPlan(s, p)
	u.work.noteWrite(p, now)
}

// view is what a claim is planned from.
type view struct {
	claim             *v1alpha1.SandboxClaim
	held              []*v1alpha1.Sandbox
	complete, deleted bool
	doubts            int
}

// snapshot returns what is known of the claim, its sandboxes ordered by name.
func (u *unfinishedClaim) snapshot() view {
	u.mu.Lock()
	defer u.mu.Unlock()
	held := slices.SortedFunc(maps.Values(u.held), func(a, b *v1alpha1.Sandbox) int { return cmp.Compare(a.Name, b.Name) })
	return view{claim: u.claim, held: held, complete: u.complete, deleted: u.deleted, doubts: u.doubts}
}

// latest is the claim as it stands.
func (u *unfinishedClaim) latest() *v1alpha1.SandboxClaim {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.claim
}

// recordPlan notes what a plan says of what may help the claim, and what the work on it has
// kept from pods.
func (u *unfinishedClaim) recordPlan(s *plan.State, p *plan.Plan) {
	u.mu.Lock()
	defer u.mu.Unlock()
	goesOn := !claims.EndsRefused(s.Claim)
	u.outlook.stuck = (p.Wants.Need > 0 || goesOn && s.Refused != nil) && (p.Problem != nil || p.Broken != nil)
	unserved := !s.Eligible.Found || len(s.Eligible.Pools) == 0
	u.outlook.hopeless = (u.outlook.stuck && (unserved || goesOn) || s.Making.Name == plan.NameTaken) && len(p.Made) == 0 && !slices.ContainsFunc(s.Held, plan.IsStarting)
	u.outlook.notDone.Update(&u.work.reservation.notDone)
}

// notDone returns what the plans of this server could not do for the claim.
func (u *unfinishedClaim) notDone() shortfall.Shortfall {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.outlook.notDone
}

// canBeHelpedBy reports whether a change of some set or template of its namespace may matter
// to the claim; sets are those that changed, if that is known.
func (u *unfinishedClaim) canBeHelpedBy(sets ...*v1alpha1.SandboxSet) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.claim == nil {
		return false
	}
	return u.outlook.stuck || slices.ContainsFunc(sets, func(set *v1alpha1.SandboxSet) bool {
		return set != nil && claims.MayServe(set, u.claim)
	})
}

// startTime is the start of the claim by the clock of this server.
func (u *unfinishedClaim) startTime() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.start.started
}
