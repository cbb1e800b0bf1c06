// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/storage"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// TestUnknownOutcome of a claim's first transaction: what Create makes of what is found
// out, and what becomes of the two sandboxes that it took.
func TestUnknownOutcome(t *testing.T) {
	ours := func(c *v1alpha1.SandboxClaim) { c.ResourceVersion = "20" }
	another := func(c *v1alpha1.SandboxClaim) { c.UID = "another" }
	written := func(is bool) func() (bool, error) { return func() (bool, error) { return is, nil } }
	unsettled := func() (bool, error) { return false, etcdtxn.ErrNotSettled }
	full := fmt.Errorf("%w: %w", etcdtxn.ErrUnknownOutcome, etcdtxn.ErrNoSpace)
	tests := map[string]struct {
		commit error // default etcdtxn.ErrUnknownOutcome
		settle func() (bool, error)
		stored func(*v1alpha1.SandboxClaim) // nil: there is none
		err    error
		taken  int // is still the claim's
	}{
		"it was written":                         {settle: written(true), stored: ours},
		"it was, and deleted since":              {settle: written(true), err: ErrUnknownOutcome},
		"it was, deleted, and made again":        {settle: written(true), stored: another, err: ErrUnknownOutcome},
		"it was not":                             {settle: written(false), err: storage.ErrReplan, taken: 1},
		"it was not, and the name is taken":      {settle: written(false), stored: another, err: ErrClaimExists, taken: 2},
		"none can tell, but the claim is there":  {settle: unsettled, stored: ours},
		"none can tell":                          {settle: unsettled, err: ErrUnknownOutcome, taken: 2},
		"none can tell, and the name is taken":   {settle: unsettled, stored: another, err: ErrUnknownOutcome, taken: 2},
		"it was not, as far as the claim's read": {settle: written(false), stored: ours}, // judged by the claim
		"etcd is full, and it was not":           {commit: full, settle: written(false), err: etcdtxn.ErrNoSpace, taken: 2},
		"etcd is full of it":                     {commit: full, settle: written(true), stored: ours},
		"etcd is full, and none can tell":        {commit: full, settle: unsettled, err: ErrUnknownOutcome, taken: 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			set := setOf("a", "py")
			d := newDesk(t, set)
			d.shelf.templates["py-"+pods] = templateOfPod("py-" + pods)
			d.stocks("one", set, pods)
			d.stocks("two", set, pods)
			first := d.newAttempt(warm(2))
			p := d.planned(first)
			if tc.stored != nil {
				d.shelf.claims["mine"] = claimOf(tc.stored)
			}
			tries, guarded := 0, true
			d.begin = func() Txn {
				return &slip{
					commit: func(s *slip) error {
						guarded = s.guarded
						return cmp.Or(tc.commit, etcdtxn.ErrUnknownOutcome)
					},
					settle: func() (bool, error) {
						if tries++; tries == 1 { // then it tries again
							return false, errDown
						}
						return tc.settle()
					},
				}
			}
			var stored *v1alpha1.SandboxClaim
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				stored, err = d.committer.create(t.Context(), p, first.finder.reservation)
			}()
			d.stepUntil(time.Minute, func() bool {
				select {
				case <-done:
					return true
				default:
					return false
				}
			})
			if !errors.Is(err, tc.err) || errors.Is(err, ErrUnknownOutcome) != errors.Is(tc.err, ErrUnknownOutcome) || (err == nil) != (stored != nil && stored.UID == "claim-uid") || tries != 2 {
				t.Errorf("%v, %v after %d tries", stored, err, tries)
			}
			if len(first.finder.reservation.taken) != tc.taken || d.left("a") != 0 || guarded {
				t.Errorf("holds %d, left %d, guarded %t", len(first.finder.reservation.taken), d.left("a"), guarded)
			}
		})
	}
	t.Run("of one that binds nothing", func(t *testing.T) {
		d := newDesk(t, setOf("a", "py"))
		first := d.newAttempt(warm(1))
		p := d.planned(first)
		guarded := false
		d.begin = func() Txn {
			return &slip{
				commit: func(s *slip) error { guarded = s.guarded; return etcdtxn.ErrUnknownOutcome },
				settle: func() (bool, error) { return false, nil },
			}
		}
		if _, err := d.committer.create(t.Context(), p, first.finder.reservation); !errors.Is(err, storage.ErrReplan) || !guarded {
			t.Errorf("%v, guarded %t", err, guarded)
		}
	})
}

// TestCommitWithoutAnswerKeepsRevision: a transaction that etcd did not answer, and that was written, is
// recorded at its own revision, also if the claim has been changed since. With the newer revision
// of the claim the index would wait for an event that never comes, and would miss the sandbox if
// it became available again before that revision.
func TestCommitWithoutAnswerKeepsRevision(t *testing.T) {
	set := setOf("a", "py")
	d := newDesk(t, set)
	d.shelf.templates["py-"+pods] = templateOfPod("py-" + pods)
	d.stocks("one", set, pods)
	before := d.sandboxes["one"].DeepCopy()
	first := d.newAttempt(warm(1))
	p := d.planned(first)
	d.begin = func() Txn {
		return &slip{
			commit: func(s *slip) error {
				s.at(12)
				d.Feeds.SandboxChanged(s.sandboxes[0])
				changed := s.claim.DeepCopy()
				changed.ResourceVersion = "20"
				d.shelf.claims["mine"] = changed
				return etcdtxn.ErrUnknownOutcome
			},
			settle: func() (bool, error) { return true, nil },
		}
	}
	if _, err := d.committer.create(t.Context(), p, first.finder.reservation); err != nil {
		t.Fatal(err)
	}
	d.clock.Step(time.Hour)
	if behind := d.IndexBehind(); behind != 0 {
		t.Errorf("the index, which has heard of all, is behind by %s", behind)
	}
	before.ResourceVersion = "18"
	d.Feeds.SandboxChanged(before)
	if d.left("a") != 1 {
		t.Error("a sandbox that is available again is no candidate")
	}
}
