// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// A claim that is put off for its bytes gives back what it has taken, and goes on when it is
// told to, without an error. What ends it is not put off.
func TestPutOff(t *testing.T) {
	set := setOf("a", "py")
	d := newDesk(t, set)
	d.shelf.templates["py-"+pods] = templateOfPod("py-" + pods)
	d.stocks("one", set, pods)
	claim := d.stored(warm(2))
	d.Feeds().ClaimChanged(claim)
	var refusable []bool
	d.begin = func() Txn {
		return &slip{commit: func(s *slip) error {
			if refusable = append(refusable, s.refusable); s.refusable {
				return &PutOffError{Reason: "too many bytes", RetryAfter: 7 * time.Second}
			}
			s.at(20)
			return nil
		}}
	}
	d.worker.next(t.Context())
	if u := d.worker.known.of(claim.UID); len(u.work.taken) != 0 || d.left("a") != 1 {
		t.Errorf("holds %d, left %d", len(u.work.taken), d.left("a"))
	}
	if n := d.worker.known.turns.NumRequeues(claim.UID); n != 0 || !slices.Equal(refusable, []bool{true}) {
		t.Errorf("tried again %d times as after an error, transactions that may be refused: %v", n, refusable)
	}
	d.woken() // by what was given back
	d.stepUntil(time.Second, func() bool { return slices.Equal(d.woken(), []types.UID{claim.UID}) })

	refusable = nil
	d.clock.Step(v1alpha1.DefaultClaimTimeout)
	d.worker.known.turns.Add(claim.UID)
	d.worker.next(t.Context())
	if !slices.Equal(refusable, []bool{false}) {
		t.Errorf("of the transactions at its end these may be refused: %v", refusable)
	}
}
