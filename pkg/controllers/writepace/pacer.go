// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package writepace delays repeated writes of the same object. For example, a process in a sandbox
// can toggle the readiness of its pod without end. Each write of the status stores the whole object
// again, and write limits reject only the creates of controllers, not their updates.
package writepace

import (
	"encoding/json"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// firstPause and maxPause are the first and the longest pause of a small object.
	firstPause = time.Second
	maxPause   = time.Minute
	// Pauses of large objects are longer: the first is size/firstRate, and the longest is
	// size/lastRate. Rates are in bytes per second.
	firstRate = 32 << 10
	lastRate  = 4 << 10
	// Objects of up to smallSize bytes are not delayed by MinInterval.
	smallSize = 16 << 10
	// After resetAfter without a write, pauses start again with the first. The time counts from the
	// end of the last pause.
	resetAfter = 10 * time.Minute
)

// Pacer delays repeated writes of objects. The first write of an object is not delayed. After each write
// the next one has to wait, first a second and then twice as long each time, up to a minute; longer
// for large objects. It is safe for concurrent use.
type Pacer struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	paces map[types.NamespacedName]pace
	// swept is when old entries were last removed.
	swept time.Time
}

// pace is the last write of an object and the pause after it.
type pace struct {
	wrote time.Time
	pause time.Duration
}

// New returns a Pacer.
func New(c clock.PassiveClock) *Pacer {
	return &Pacer{clock: c, paces: map[types.NamespacedName]pace{}, swept: c.Now()}
}

// Delay returns how long the next write of an object must wait. The caller must then write the
// current state, not the one that was delayed.
func (p *Pacer) Delay(key types.NamespacedName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.paces[key]
	if !ok {
		return 0
	}
	return max(0, last.wrote.Add(last.pause).Sub(p.clock.Now()))
}

// RecordWrite records a write of an object.
func (p *Pacer) RecordWrite(object client.Object) {
	p.RecordKey(client.ObjectKeyFromObject(object), object)
}

// RecordKey records a write of an object under a key of the caller's. It returns the pause that
// follows, and reports whether the write repeats an earlier one that counts still.
func (p *Pacer) RecordKey(key types.NamespacedName, object client.Object) (pause time.Duration, repeated bool) {
	bytes := size(object)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	if now.Sub(p.swept) >= resetAfter {
		maps.DeleteFunc(p.paces, func(_ types.NamespacedName, last pace) bool { return last.isOver(now) })
		p.swept = now
	}
	pause = max(firstPause, writeTime(bytes, firstRate))
	last, ok := p.paces[key]
	if repeated = ok && !last.isOver(now); repeated {
		pause = min(max(pause, 2*last.pause), max(maxPause, writeTime(bytes, lastRate)))
	}
	p.paces[key] = pace{now, pause}
	return pause, repeated
}

// isOver reports whether the next pause is the first again.
func (p pace) isOver(now time.Time) bool { return now.Sub(p.wrote) >= p.pause+resetAfter }

// Forget forgets an object that is gone.
func (p *Pacer) Forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.paces, key)
}

// size returns about how many bytes are stored for an object.
func size(object client.Object) int {
	data, err := json.Marshal(object)
	if err != nil {
		return 0 // it was just encoded to be written
	}
	return len(data)
}

// MinInterval returns the shortest interval between two writes of an object that often has good
// reasons to change: 0 for a small object, otherwise a second for each 32 KiB above smallSize.
func MinInterval(object client.Object) time.Duration {
	return writeTime(max(0, size(object)-smallSize), firstRate)
}

// writeTime returns how long it takes to write so many bytes at a rate in bytes per second.
func writeTime(bytes int, rate int64) time.Duration {
	return time.Duration(bytes) * time.Second / time.Duration(rate)
}
