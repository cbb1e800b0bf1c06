// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/third_party/forked/golang/btree"
)

// workShare shares workers among namespaces: one may have as many turns at a time as
// workers are left for others then. So turns that are slow, because admission of what is
// made for the claims of a namespace is, leave workers to all others.
//
// A turn that may not begin is put off. Whenever a turn ends, of any namespace, as many
// of those that were put off are woken as may begin now: those of the namespace with the
// fewest turns first. A turn that is woken is asked for once more with begin. Where it is
// not needed any more, its caller calls wake, so that others get what was meant for it.
type workShare struct {
	workers int
	// add lets a turn that was put off be tried again.
	add func(types.UID)

	mu   sync.Mutex
	busy int
	// shares are the namespaces that have turns, or turns that were put off, and waiting
	// those that have some that were put off, the one with the fewest turns first.
	shares  map[string]*share
	waiting *btree.BTree[*share]
}

// share is the part of the workers that one namespace has.
type share struct {
	namespace string
	// turns is how many turns the namespace has, and woken how many more it will have if
	// those begin that one call of wake wakes.
	turns, woken int
	// putOff are the turns that were put off.
	putOff map[types.UID]struct{}
}

// newWorkShare returns what shares out workers. add lets a turn that was put off be tried
// again; it must not block.
func newWorkShare(workers int, add func(types.UID)) *workShare {
	s := &workShare{workers: workers, add: add, shares: map[string]*share{}}
	s.waiting = btree.New(8, func(a, b *share) bool {
		return cmp.Or(cmp.Compare(a.turns+a.woken, b.turns+b.woken), cmp.Compare(a.namespace, b.namespace)) < 0
	})
	return s
}

// begin reports whether a turn may begin. If not, it is put off.
func (s *workShare) begin(namespace string, uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.shares[namespace]
	if of == nil {
		of = &share{namespace: namespace, putOff: map[types.UID]struct{}{}}
		s.shares[namespace] = of
	}
	may := s.mayBegin(of, s.busy)
	s.change(of, func() {
		if may {
			s.busy++
			of.turns++
			delete(of.putOff, uid)
		} else {
			of.putOff[uid] = struct{}{}
		}
	})
	return may
}

// end ends a turn, and wakes those that may begin now.
func (s *workShare) end(namespace string) {
	s.mu.Lock()
	of := s.shares[namespace]
	s.change(of, func() {
		s.busy--
		of.turns--
	})
	s.mu.Unlock()
	s.wake()
}

// wake wakes as many of the turns that were put off as may begin now.
func (s *workShare) wake() {
	for _, uid := range s.due() {
		s.add(uid)
	}
}

// due returns the turns that were put off and may begin now, all of them together.
func (s *workShare) due() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []types.UID
	var woken []*share
	for {
		of, ok := s.waiting.Min()
		if !ok || !s.mayBegin(of, s.busy+len(due)) {
			break
		}
		s.change(of, func() {
			for uid := range of.putOff {
				delete(of.putOff, uid)
				due = append(due, uid)
				break
			}
			of.woken++
		})
		woken = append(woken, of)
	}
	for _, of := range woken {
		s.change(of, func() { of.woken = 0 })
	}
	return due
}

// mayBegin reports whether a namespace may have one more turn while so many workers are busy.
func (s *workShare) mayBegin(of *share, busy int) bool {
	has := of.turns + of.woken
	return has == 0 || has < s.workers-busy-1
}

// change changes a share, and keeps those that wait in their order.
func (s *workShare) change(of *share, change func()) {
	if len(of.putOff) > 0 {
		s.waiting.Delete(of)
	}
	change()
	if len(of.putOff) > 0 {
		s.waiting.ReplaceOrInsert(of)
	}
	if of.turns+of.woken+len(of.putOff) == 0 {
		delete(s.shares, of.namespace)
	}
}
