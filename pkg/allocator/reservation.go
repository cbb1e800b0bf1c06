// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/allocator/reconciler"
	"github.com/sandlot-io/sandlot/pkg/allocator/shortfall"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// reservation has the candidates that were found for one claim and are not committed yet. It is kept from one
// attempt of the claim to the next, and used by one goroutine at a time.
type reservation struct {
	// taken are from the pools. They are this claim's alone until they are answered for.
	taken []reservedSandbox
	// made were admitted, and perhaps charged to a quota.
	made []*v1alpha1.Sandbox
	// charged is the number of sandboxes that are not written yet and for which a quota may
	// have been charged: those of made, and those that were dropped since the last plan. Charges
	// are not given back, so sandboxes that are made instead of dropped ones use theirs.
	charged int
	// room is how many sandboxes a transaction may change, and refused why the claim
	// gets no more, as far as that was found out by trying.
	room    int
	refused *RefusedError
	// generation is that of the claim that taken and made are prepared for.
	generation int64
	// identityErr is ErrIdentityUnknown once that was found out, which does not change later; nil
	// otherwise.
	identityErr error
	// nameSeen is at which revision a sandbox of another was met under the name of the one
	// that was made for the claim; 0 if none was.
	nameSeen uint64
	// denied is why admission let no sandbox be made for the claim the last time; nil if it did.
	denied error
	// notDone is what plans so far could not do of what the claim asks for.
	notDone shortfall.Shortfall
	// makeBackoff delays making sandboxes after a failure, and lookBackoff looking at what is in
	// the way and no watch may report.
	makeBackoff, lookBackoff reconciler.Backoff
}

// reservedSandbox is a candidate, as the index has it and as it is to be bound.
type reservedSandbox struct {
	candidate poolindex.Candidate
	prepared  *plan.Candidate
}

func newReservation() *reservation {
	return &reservation{
		room:        etcdtxn.MaxOps - 1,
		notDone:     shortfall.Shortfall{HeldBack: sets.Set[string]{}, WithoutRuntime: sets.Set[string]{}},
		makeBackoff: reconciler.NewBackoff(wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 30 * time.Second}),
		lookBackoff: reconciler.NewBackoff(wait.Backoff{Duration: 2 * time.Second, Factor: 1.5, Jitter: 0.2, Steps: 6, Cap: 5 * time.Second}),
	}
}

// offer is what is reserved, and beside it how many sandboxes would be made, or why none can be.
func (r *reservation) offer(wouldMake int, broken error) plan.Offer {
	o := plan.Offer{Made: r.made, WouldMake: wouldMake, Broken: broken, Candidates: make([]plan.Candidate, 0, len(r.taken))}
	for _, c := range r.taken {
		o.Candidates = append(o.Candidates, *c.prepared)
	}
	return o
}

// noteMarks notes what a plan was made with. Charges of sandboxes that were dropped before are not
// counted on any more: the quota controller may have released them by now.
func (r *reservation) noteMarks(m *plan.Marks) {
	r.charged = len(r.made)
	r.notDone.HeldBack.Insert(m.HeldBack()...)
	r.notDone.WithoutRuntime.Insert(m.WithoutRuntime()...)
}

// release releases what was taken and not bound.
func (r *reservation) release(q *queue.Queue) {
	q.Release(r.candidates())
	r.taken = nil
}

// candidates are what was taken.
func (r *reservation) candidates() []poolindex.Candidate {
	all := make([]poolindex.Candidate, 0, len(r.taken))
	for _, c := range r.taken {
		all = append(all, c.candidate)
	}
	return all
}
