// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/third_party/forked/golang/btree"
)

// workShare shares workers among namespaces: at most as many tasks of a namespace run at a time as it
// leaves workers free. So a namespace whose tasks are slow, for instance because admission of its
// sandboxes is slow, leaves workers to all others.
//
// A task that may not begin is deferred. Whenever a task of any namespace ends, as many of the
// deferred tasks are woken as may begin now, those of the namespace with the fewest running tasks
// first. The caller of a woken task calls begin again. If the task is not needed any more, it calls
// wake instead, so that another task can begin.
type workShare struct {
	workers int
	// isLimit is set if there are never more tasks than workers. Otherwise each namespace has one in
	// any case.
	isLimit bool
	// add queues a deferred task again.
	add func(types.UID)

	mu   sync.Mutex
	busy int
	// shares are the namespaces that have running or deferred tasks. waiting are those that have
	// deferred tasks, ordered by the number of running tasks.
	shares  map[string]*share
	waiting *btree.BTree[*share]
}

// share is the part of the workers that one namespace has.
type share struct {
	namespace string
	// turns is how many tasks of the namespace run. woken is how many more will run when the tasks
	// have begun that the current call of due returns; it is 0 between calls.
	turns, woken int
	// putOff are the deferred tasks.
	putOff map[types.UID]struct{}
}

// newWorkShare returns a workShare for a number of workers. add queues a deferred task again; it must
// not block.
func newWorkShare(workers int, add func(types.UID)) *workShare {
	s := &workShare{workers: workers, add: add, shares: map[string]*share{}}
	s.waiting = btree.New(8, func(a, b *share) bool {
		return cmp.Or(cmp.Compare(a.turns+a.woken, b.turns+b.woken), cmp.Compare(a.namespace, b.namespace)) < 0
	})
	return s
}

// newWorkLimit returns a workShare that never has more tasks than workers.
func newWorkLimit(workers int, add func(types.UID)) *workShare {
	s := newWorkShare(workers, add)
	s.isLimit = true
	return s
}

// begin reports whether a task may begin. If not, it is deferred.
func (s *workShare) begin(namespace string, uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.shares[namespace]
	if sh == nil {
		sh = &share{namespace: namespace, putOff: map[types.UID]struct{}{}}
		s.shares[namespace] = sh
	}
	may := s.mayBegin(sh, s.busy)
	s.change(sh, func() {
		if may {
			s.busy++
			sh.turns++
			delete(sh.putOff, uid)
		} else {
			sh.putOff[uid] = struct{}{}
		}
	})
	return may
}

// end ends a task, and wakes those that may begin now.
func (s *workShare) end(namespace string) {
	s.mu.Lock()
	sh := s.shares[namespace]
	s.change(sh, func() {
		s.busy--
		sh.turns--
	})
	s.mu.Unlock()
	s.wake()
}

// wake wakes as many of the deferred tasks as may begin now.
func (s *workShare) wake() {
	for _, uid := range s.due() {
		s.add(uid)
	}
}

// due returns the deferred tasks that may begin now, all of them together.
func (s *workShare) due() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []types.UID
	var woken []*share
	for {
		sh, ok := s.waiting.Min()
		if !ok || !s.mayBegin(sh, s.busy+len(due)) {
			break
		}
		s.change(sh, func() {
			for uid := range sh.putOff {
				delete(sh.putOff, uid)
				due = append(due, uid)
				break
			}
			sh.woken++
		})
		woken = append(woken, sh)
	}
	for _, sh := range woken {
		s.change(sh, func() { sh.woken = 0 })
	}
	return due
}

// mayBegin reports whether one more task of a namespace may run while this many workers are busy.
func (s *workShare) mayBegin(sh *share, busy int) bool {
	has := sh.turns + sh.woken
	if s.isLimit && busy >= s.workers {
		return false
	}
	return has == 0 || has < s.workers-busy-1
}

// change calls a function that changes a share, and keeps waiting and shares in step.
func (s *workShare) change(sh *share, change func()) {
	if len(sh.putOff) > 0 {
		s.waiting.Delete(sh)
	}
	change()
	if len(sh.putOff) > 0 {
		s.waiting.ReplaceOrInsert(sh)
	}
	if sh.turns+sh.woken+len(sh.putOff) == 0 {
		delete(s.shares, sh.namespace)
	}
}
