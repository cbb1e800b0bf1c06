// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"cmp"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/third_party/forked/golang/btree"
)

// WorkShare shares workers among namespaces: at most as many tasks of a namespace run at a time as it
// leaves workers free. So a namespace whose tasks are slow, for instance because admission of its
// sandboxes is slow, leaves workers to all others.
//
// A task that may not begin is deferred. Whenever a task of any namespace ends, as many of the
// deferred tasks are woken as may begin now, those of the namespace with the fewest running tasks
// first. The caller of a woken task calls Begin again. If the task is not needed any more, it calls
// Wake instead, so that another task can begin.
type WorkShare struct {
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
	// running is how many tasks of the namespace run. woken is how many more will run when the tasks
	// have begun that the current call of due returns; it is 0 between calls.
	running, woken int
	// deferred are the deferred tasks.
	deferred map[types.UID]struct{}
}

// NewWorkShare returns a WorkShare for a number of workers. add queues a deferred task again; it must
// not block.
func NewWorkShare(workers int, add func(types.UID)) *WorkShare {
	s := &WorkShare{workers: workers, add: add, shares: map[string]*share{}}
	s.waiting = btree.New(8, func(a, b *share) bool {
		return cmp.Or(cmp.Compare(a.running+a.woken, b.running+b.woken), cmp.Compare(a.namespace, b.namespace)) < 0
	})
	return s
}

// NewWorkLimit returns a WorkShare that never has more tasks than workers.
func NewWorkLimit(workers int, add func(types.UID)) *WorkShare {
	s := NewWorkShare(workers, add)
	s.isLimit = true
	return s
}

// Begin reports whether a task may begin. If not, it is deferred.
func (s *WorkShare) Begin(namespace string, uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.shares[namespace]
	if sh == nil {
		sh = &share{namespace: namespace, deferred: map[types.UID]struct{}{}}
		s.shares[namespace] = sh
	}
	may := s.mayBegin(sh, s.busy)
	s.change(sh, func() {
		if may {
			s.busy++
			sh.running++
			delete(sh.deferred, uid)
		} else {
			sh.deferred[uid] = struct{}{}
		}
	})
	return may
}

// End ends a task, and wakes those that may begin now.
func (s *WorkShare) End(namespace string) {
	s.mu.Lock()
	sh := s.shares[namespace]
	s.change(sh, func() {
		s.busy--
		sh.running--
	})
	s.mu.Unlock()
	s.Wake()
}

// Wake wakes as many of the deferred tasks as may begin now.
func (s *WorkShare) Wake() {
	for _, uid := range s.due() {
		s.add(uid)
	}
}

// IsIdle reports whether no task runs and none is deferred.
func (s *WorkShare) IsIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.shares) == 0 && s.busy == 0 && s.waiting.Len() == 0
}

// due returns the deferred tasks that may begin now, all of them together.
func (s *WorkShare) due() []types.UID {
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
			for uid := range sh.deferred {
				delete(sh.deferred, uid)
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
func (s *WorkShare) mayBegin(sh *share, busy int) bool {
	has := sh.running + sh.woken
	if s.isLimit && busy >= s.workers {
		return false
	}
	return has == 0 || has < s.workers-busy-1
}

// change calls a function that changes a share, and keeps waiting and shares in step.
func (s *WorkShare) change(sh *share, change func()) {
	if len(sh.deferred) > 0 {
		s.waiting.Delete(sh)
	}
	change()
	if len(sh.deferred) > 0 {
		s.waiting.ReplaceOrInsert(sh)
	}
	if sh.running+sh.woken+len(sh.deferred) == 0 {
		delete(s.shares, sh.namespace)
	}
}
