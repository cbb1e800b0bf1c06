// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// claimedTTL is how long a claim may come later than a sandbox that it has taken.
const claimedTTL = 10 * time.Second

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
	// claimed are the sandboxes that were seen to go to the claim and that it may
	// not show: the claim changes in the same transaction, but is another watch.
	//
	// Example: a claim for 3 at revision 7 has 0. The cache shows a sandbox claimed by
	// it at 9: it waits for 2. Then the claim at 9 with 1: it still waits for 2.
	//
	// Where the cache has missed changes of a sandbox, it may show it at 12 at first,
	// when the claim at 9 has been seen. Nothing needs to come of that claim any more,
	// so what is claimed is believed for as long as watches may differ, and no longer.
	claimed []claimedSandbox
}

// claimedSandbox is a sandbox that a claim may not show yet.
type claimedSandbox struct {
	// version is the resourceVersion at which it was seen to be claimed.
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
		now.claimed = slices.DeleteFunc(before.claimed, func(t claimedSandbox) bool { return !newer(t.version, claim.ResourceVersion) })
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

// recordClaimed records that the cache shows a sandbox that a claim has taken at a
// resourceVersion.
func (w *waitingClaims) recordClaimed(claim types.UID, version string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if waiting := w.byUID[claim]; waiting != nil && newer(version, waiting.ResourceVersion) {
		waiting.claimed = append(waiting.claimed, claimedSandbox{version, now.Add(claimedTTL)})
	}
}

// claim returns a claim that waits, or nil.
func (w *waitingClaims) claim(uid types.UID) *v1alpha1.SandboxClaim {
	w.mu.Lock()
	defer w.mu.Unlock()
	if waiting := w.byUID[uid]; waiting != nil {
		return waiting.SandboxClaim
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
			waiting.claimed = slices.DeleteFunc(waiting.claimed, func(t claimedSandbox) bool { return !now.Before(t.until) })
			if len(waiting.claimed) > 0 {
				requeueAfter = queue.MinRequeue(requeueAfter, waiting.claimed[0].until.Sub(now))
			}
			if n := claims.Waiting(waiting.SandboxClaim) - len(waiting.claimed); n > 0 && served(waiting.SandboxClaim) {
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
