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
)

// waiting knows the claims that wait for sandboxes of pools, as the cache shows
// them. Claims that were served at once, which are most, never get in.
type waiting struct {
	mu     sync.Mutex
	claims map[types.UID]*waiter
	// asking finds them by what they ask for.
	asking map[types.NamespacedName]map[types.UID]*waiter
	// uids finds them by their own names.
	uids map[types.NamespacedName]types.UID
}

// waiter is a claim that waits.
type waiter struct {
	claim *v1alpha1.SandboxClaim
	// taken are the sandboxes that were seen to be taken for it and that it may not
	// know of: the claim changes in the same transaction, but is another watch.
	//
	// Example: a claim for 3 at revision 7 has 0. The cache shows a sandbox taken for
	// it at 9: it waits for 2. Then the claim at 9 with 1: it still waits for 2.
	//
	// Where the cache has missed changes of a sandbox, it may show it at 12 at first,
	// when the claim at 9 has been seen. Nothing needs to come of that claim any more,
	// so what is taken is believed for as long as watches may differ, and no longer.
	taken []taken
}

// taken is the resourceVersion at which a sandbox was seen to be taken, and until when
// its claim may not show it.
type taken struct {
	at    string
	until time.Time
}

// takenTTL is how long a claim may come later than a sandbox that is taken for it.
const takenTTL = 10 * time.Second

func newWaiting() *waiting {
	return &waiting{
		claims: map[types.UID]*waiter{},
		asking: map[types.NamespacedName]map[types.UID]*waiter{},
		uids:   map[types.NamespacedName]types.UID{},
	}
}

// saw takes in a claim as the cache shows it now. It returns false where that makes
// no difference: it did not wait and does not.
func (w *waiting) saw(claim *v1alpha1.SandboxClaim) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(claim)
	before := w.claims[w.uids[key]]
	if claims.Waiting(claim) == 0 {
		w.remove(key)
		return before != nil
	}
	now := &waiter{claim: claim}
	if before != nil && before.claim.UID == claim.UID {
		now.taken = slices.DeleteFunc(before.taken, func(t taken) bool { return !newer(t.at, claim.ResourceVersion) })
	}
	w.remove(key)
	w.claims[claim.UID], w.uids[key] = now, claim.UID
	asked := askedOf(claim)
	if w.asking[asked] == nil {
		w.asking[asked] = map[types.UID]*waiter{}
	}
	w.asking[asked][claim.UID] = now
	return true
}

// gone says that the cache shows a claim no more. It returns false if it did not
// wait.
func (w *waiting) gone(claim types.NamespacedName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.remove(claim)
}

func (w *waiting) remove(key types.NamespacedName) bool {
	before := w.claims[w.uids[key]]
	if before == nil {
		return false
	}
	asked := askedOf(before.claim)
	delete(w.asking[asked], before.claim.UID)
	if len(w.asking[asked]) == 0 {
		delete(w.asking, asked)
	}
	delete(w.claims, before.claim.UID)
	delete(w.uids, key)
	return true
}

// took says that the cache shows a sandbox that was taken for a claim at a
// resourceVersion.
func (w *waiting) took(claim types.UID, at string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of := w.claims[claim]; of != nil && newer(at, of.claim.ResourceVersion) {
		of.taken = append(of.taken, taken{at, now.Add(takenTTL)})
	}
}

// claim returns a claim that waits, or nil.
func (w *waiting) claim(uid types.UID) *v1alpha1.SandboxClaim {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of := w.claims[uid]; of != nil {
		return of.claim
	}
	return nil
}

// wait is a claim and how many sandboxes it waits for.
type wait struct {
	claim    *v1alpha1.SandboxClaim
	replicas int
}

// on returns the claims that ask for one of these names in a namespace, and after what
// time that may be different without an event; 0 is never.
func (w *waiting) on(namespace string, now time.Time, names ...string) ([]wait, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []wait
	var again time.Duration
	for _, name := range names {
		for _, of := range w.asking[types.NamespacedName{Namespace: namespace, Name: name}] {
			of.taken = slices.DeleteFunc(of.taken, func(t taken) bool { return !now.Before(t.until) })
			if len(of.taken) > 0 {
				again = sooner(again, of.taken[0].until.Sub(now))
			}
			if n := claims.Waiting(of.claim) - len(of.taken); n > 0 {
				all = append(all, wait{of.claim, n})
			}
		}
	}
	return all, again
}

// newer says whether one resourceVersion comes after another. What cannot be
// compared does not.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
