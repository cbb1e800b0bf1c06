// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package writepace spaces the writes of an object that only repeat a change, such as those of the
// status of a sandbox whose pod is ready and not ready in turn. A process in a sandbox causes such
// changes as often as it likes, each of them stores the whole object again, and write limits do not
// hold for controllers.
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
	// firstPause is the pause after the first write, and maxPause the longest one, of an object of
	// ordinary size.
	firstPause = time.Second
	maxPause   = time.Minute
	// firstRate and lastRate are in bytes per second. The first pause of a large object is as long
	// as it takes at firstRate to write it, and the longest one as long as it takes at lastRate.
	firstRate = 32 << 10
	lastRate  = 4 << 10
	// ordinarySize is the most bytes of an object that Pause does not delay.
	ordinarySize = 16 << 10
	// quietTime is how long after a write the next one counts as the first.
	quietTime = 10 * time.Minute
)

// Pacer spaces the writes of objects. The first write of an object is not delayed. After each write
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

// Left returns for how long the next write of an object must wait. The caller writes the state of
// then, so that the last state is always written.
func (p *Pacer) Left(key types.NamespacedName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.paces[key]
	if !ok {
		return 0
	}
	return max(0, last.wrote.Add(last.pause).Sub(p.clock.Now()))
}

// Wrote records a write of an object.
func (p *Pacer) Wrote(object client.Object) {
	bytes := size(object)
	p.mu.Lock()
	defer p.mu.Unlock()
	now, key := p.clock.Now(), client.ObjectKeyFromObject(object)
	if now.Sub(p.swept) >= quietTime {
		maps.DeleteFunc(p.paces, func(_ types.NamespacedName, last pace) bool { return last.isOver(now) })
		p.swept = now
	}
	pause := max(firstPause, at(bytes, firstRate))
	if last, ok := p.paces[key]; ok && !last.isOver(now) {
		pause = min(max(pause, 2*last.pause), max(maxPause, at(bytes, lastRate)))
	}
	p.paces[key] = pace{now, pause}
}

// isOver reports whether the next write counts as the first.
func (p pace) isOver(now time.Time) bool { return now.Sub(p.wrote) >= p.pause+quietTime }

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

// Pause returns how long to wait between two writes of an object that changes often for good
// reasons: not at all for one of ordinary size, and for a large one as long as it takes at firstRate
// to write what it has beyond that.
func Pause(object client.Object) time.Duration {
	return at(max(0, size(object)-ordinarySize), firstRate)
}

// at returns how long it takes to write so many bytes at a rate, in bytes per second.
func at(bytes int, rate int64) time.Duration {
	return time.Duration(bytes) * time.Second / time.Duration(rate)
}
