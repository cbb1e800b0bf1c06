// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/quietperiod"
)

// takenTTL is how long a claim may come later than a sandbox that is taken for it.
const takenTTL = 10 * time.Second

// waitingClaims are the claims that wait for sandboxes of pools, as the cache shows
// them. Claims that were served at once, which are most, never get in.
type waitingClaims struct {
	mu    sync.Mutex
	byUID map[types.UID]*waitingClaim
	// byAsked finds them by what they ask for.
	byAsked map[types.NamespacedName]map[types.UID]*waitingClaim
	uids    map[types.NamespacedName]types.UID
}

type waitingClaim struct {
	*v1alpha1.SandboxClaim
	// taken are the sandboxes that were seen to be taken for the claim and that it may
	// not show: the claim changes in the same transaction, but is another watch.
	//
	// Example: a claim for 3 at revision 7 has 0. The cache shows a sandbox taken for
	// it at 9: it waits for 2. Then the claim at 9 with 1: it still waits for 2.
	//
	// Where the cache has missed changes of a sandbox, it may show it at 12 at first,
	// when the claim at 9 has been seen. Nothing needs to come of that claim any more,
	// so what is taken is believed for as long as watches may differ, and no longer.
	taken []takenSandbox
}

// takenSandbox is a sandbox that a claim may not show yet.
type takenSandbox struct {
	// version is the resourceVersion at which it was seen to be taken.
	version string
	until   time.Time
}

func newWaitingClaims() *waitingClaims {
	return &waitingClaims{
		byUID:   map[types.UID]*waitingClaim{},
		byAsked: map[types.NamespacedName]map[types.UID]*waitingClaim{},
		uids:    map[types.NamespacedName]types.UID{},
	}
}

// update takes in a claim as the cache shows it now. It reports whether that makes a
// difference, which it does not for a claim that did not wait and does not.
func (w *waitingClaims) update(claim *v1alpha1.SandboxClaim) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(claim)
	before := w.removeLocked(key)
	if claims.Waiting(claim) == 0 {
		return before != nil
	}
	now := &waitingClaim{SandboxClaim: claim}
	if before != nil && before.UID == claim.UID {
		now.taken = slices.DeleteFunc(before.taken, func(t takenSandbox) bool { return !newer(t.version, claim.ResourceVersion) })
	}
	w.byUID[claim.UID], w.uids[key] = now, claim.UID
	asked := askedFor(claim)
	if w.byAsked[asked] == nil {
		w.byAsked[asked] = map[types.UID]*waitingClaim{}
	}
	w.byAsked[asked][claim.UID] = now
	return true
}

// remove drops a claim that the cache no longer shows, and reports whether it waited.
func (w *waitingClaims) remove(claim types.NamespacedName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.removeLocked(claim) != nil
}

func (w *waitingClaims) removeLocked(key types.NamespacedName) *waitingClaim {
	before := w.byUID[w.uids[key]]
	if before == nil {
		return nil
	}
	asked := askedFor(before.SandboxClaim)
	delete(w.byAsked[asked], before.UID)
	if len(w.byAsked[asked]) == 0 {
		delete(w.byAsked, asked)
	}
	delete(w.byUID, before.UID)
	delete(w.uids, key)
	return before
}

// took notes that the cache shows a sandbox that was taken for a claim at a
// resourceVersion.
func (w *waitingClaims) took(claim types.UID, version string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of := w.byUID[claim]; of != nil && newer(version, of.ResourceVersion) {
		of.taken = append(of.taken, takenSandbox{version, now.Add(takenTTL)})
	}
}

// claim returns a claim that waits, or nil.
func (w *waitingClaims) claim(uid types.UID) *v1alpha1.SandboxClaim {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of := w.byUID[uid]; of != nil {
		return of.SandboxClaim
	}
	return nil
}

// claimDemand is how many sandboxes a claim waits for.
type claimDemand struct {
	claim    *v1alpha1.SandboxClaim
	replicas int
}

// askingFor returns what claims wait for that ask for one of these names in a namespace and for
// which served returns true, and after what time that may change without an event; 0 is never.
// It stops once they wait for limit sandboxes, and hasMore reports that: it holds the lock that
// the events of all claims need.
func (w *waitingClaims) askingFor(
	namespace string, names []string, served func(*v1alpha1.SandboxClaim) bool, limit int, now time.Time,
) (all []claimDemand, requeueAfter time.Duration, hasMore bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	total := 0
	for _, name := range names {
		for _, waiting := range w.byAsked[types.NamespacedName{Namespace: namespace, Name: name}] {
			if total >= limit {
				return all, requeueAfter, true
			}
			waiting.taken = slices.DeleteFunc(waiting.taken, func(t takenSandbox) bool { return !now.Before(t.until) })
			if len(waiting.taken) > 0 {
				requeueAfter = queue.MinRequeue(requeueAfter, waiting.taken[0].until.Sub(now))
			}
			if n := claims.Waiting(waiting.SandboxClaim) - len(waiting.taken); n > 0 && served(waiting.SandboxClaim) {
				all = append(all, claimDemand{waiting.SandboxClaim, n})
				total += n
			}
		}
	}
	return all, requeueAfter, false
}

// askedFor is the set or the template that a claim asks for.
func askedFor(claim *v1alpha1.SandboxClaim) types.NamespacedName {
	name, _ := v1alpha1.AskedOf(claim)
	return types.NamespacedName{Namespace: claim.Namespace, Name: name}
}

// newer reports whether one resourceVersion comes after another. What cannot be
// compared does not.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// burst is how far a pool may differ from its replicas because claims wait.
type burst struct {
	// wanted is how many more to create, kept how many more to leave alone, which is
	// never fewer.
	wanted, kept int
	// requeueAfter is after what time those beyond wanted are surplus; 0 where there
	// are none.
	requeueAfter time.Duration
}

// burstMemory remembers what was created beyond replicas, so that it is not deleted the
// moment the claims that it was created for are served otherwise or give up: others
// mostly follow, and to create it again takes seconds. What no claim has waited for or
// taken for quietperiod.MaxWait is surplus like any other. A change of the set's spec ends
// that at once: a user who shrinks a pool means it.
type burstMemory struct {
	generation int64
	// peak is how many were wanted when all of them still were, and until when those
	// are left alone that are not; zero while all are.
	peak  int
	until time.Time
}

// next takes in how many sandboxes claims wait for.
func (m *burstMemory) next(generation int64, wanted int, now time.Time) burst {
	switch {
	case m.generation != generation, wanted >= m.peak, !m.until.IsZero() && !now.Before(m.until):
		*m = burstMemory{generation: generation, peak: wanted}
	case m.until.IsZero():
		m.until = now.Add(quietperiod.MaxWait)
	}
	b := burst{wanted: wanted, kept: m.peak}
	if !m.until.IsZero() {
		b.requeueAfter = m.until.Sub(now)
	}
	return b
}

// took notes that a claim took a sandbox out of the pool.
func (m *burstMemory) took(now time.Time) {
	if !m.until.IsZero() {
		m.until = now.Add(quietperiod.MaxWait)
	}
}

// demand finds out for how many sandboxes of a set claims wait.
type demand struct {
	client client.Reader
	caches *caches
	claims *waitingClaims
}

// forSet is how many sandboxes of a set claims wait for, as far as its burst goes, and
// after what time that may be different without an event; 0 is never.
// A claim that several sets may serve counts for each of them: it cannot be known
// which of them will have a sandbox first, or at all.
func (d *demand) forSet(ctx context.Context, set *v1alpha1.SandboxSet, now time.Time) (int, time.Duration, error) {
	burst := claims.Burst(set)
	if burst == 0 {
		return 0, 0, nil
	}
	names, namedExists := namesAskedFor(set), true
	for _, template := range names[1:] {
		var err error
		if namedExists, err = d.setExists(ctx, types.NamespacedName{Namespace: set.Namespace, Name: template}); err != nil {
			return 0, 0, err
		}
	}
	served := func(claim *v1alpha1.SandboxClaim) bool { return claims.Serves(set, claim, namedExists) }
	for limit := burst; ; limit *= 2 {
		all, requeueAfter, hasMore := d.claims.askingFor(set.Namespace, names, served, limit, now)
		total, err := d.total(all, now)
		if err != nil {
			return 0, 0, err
		}
		if !hasMore || total >= burst {
			return min(total, burst), requeueAfter, nil // however many more wait
		}
	}
}

// total is for how many sandboxes claims wait, without those that they hold already.
func (d *demand) total(all []claimDemand, now time.Time) (int, error) {
	total := 0
	for _, waiting := range all {
		starting, err := d.startingFor(waiting.claim, now)
		if err != nil {
			return 0, err
		}
		total += max(waiting.replicas-starting, 0)
	}
	return total, nil
}

// startingFor is how many sandboxes a claim holds that do not count yet: it does not
// wait for others in their place.
func (d *demand) startingFor(claim *v1alpha1.SandboxClaim, now time.Time) (int, error) {
	sandboxes, err := d.caches.boundTo(claim)
	if err != nil {
		return 0, err
	}
	starting := 0
	for _, sandbox := range sandboxes {
		if sandbox.Annotations[v1alpha1.AnnotationStarting] == "" || sandbox.DeletionTimestamp != nil {
			continue
		}
		if t := sandbox.Spec.ShutdownTime; t == nil || now.Before(t.Time) {
			starting++
		}
	}
	return starting, nil
}

func (d *demand) setExists(ctx context.Context, key types.NamespacedName) (bool, error) {
	err := d.client.Get(ctx, key, &v1alpha1.SandboxSet{}, client.UnsafeDisableDeepCopy)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("getting SandboxSet %s: %w", key, err)
	}
	return err == nil, nil
}
