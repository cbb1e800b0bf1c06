// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"fmt"
	"runtime"
	"testing"
)

// fleet returns n candidates as the feed makes them: the strings of each are
// its own, because those of no two objects are shared.
func fleet(n int) []Candidate {
	cs := make([]Candidate, 0, n)
	for i := range n {
		cs = append(cs, Candidate{
			Pool:            Pool{Namespace: fmt.Sprint("team-research-", 7), Name: fmt.Sprint("code-interpreter-", 3)},
			Name:            fmt.Sprintf("code-interpreter-3-%05d", i),
			ResourceVersion: uint64(i + 1),
			Revision:        fmt.Sprint("6d5f9c7b", 84),
			Node:            fmt.Sprint("ip-10-0-13-", i%256, ".eu-central-1.compute.internal"),
		})
	}
	return cs
}

// heap is what the living objects take, and does the collector's work.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers of the first released
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// perSandbox is how many bytes an index of n sandboxes takes for each.
func perSandbox(n int, withStrings bool) float64 {
	var cs []Candidate
	if !withStrings {
		cs = fleet(n)
	}
	before := heap()
	if withStrings {
		cs = fleet(n)
	}
	x := New()
	x.Nodes.Replace(map[string]bool{})
	for _, c := range cs {
		x.Upsert(c)
	}
	if withStrings {
		cs = nil // only the index holds the strings now
	}
	bytes := float64(heap()-before) / float64(n)
	runtime.KeepAlive(cs)
	runtime.KeepAlive(x)
	return bytes
}

// TestMemory holds the index to 1 KiB a sandbox, with strings that nothing else
// holds: once an object was written again, the watch cache has new ones.
func TestMemory(t *testing.T) {
	const limit = 1024
	for _, n := range []int{1000, 20000, 60000} { // right after a map has grown, too
		if got := perSandbox(n, true); got > limit {
			t.Errorf("%d sandboxes take %.0f bytes each, want at most %d", n, got, limit)
		}
	}
}

var poolSizes = []struct {
	name string
	n    int
}{{"1k", 1_000}, {"10k", 10_000}, {"100k", 100_000}}

// BenchmarkTakeBound takes a sandbox, binds it, and puts it back with newer
// news, so that the pool keeps its size.
func BenchmarkTakeBound(b *testing.B) {
	for _, size := range poolSizes {
		b.Run("pool="+size.name, func(b *testing.B) {
			x := New()
			cs := fleet(size.n)
			for _, c := range cs {
				x.Upsert(c)
			}
			p, version := cs[0].Pool, uint64(size.n)
			x.MarkTarget(p, cs[0].Revision)
			b.ReportAllocs()
			for b.Loop() {
				taken := x.Take(p, 1)
				version++
				x.Bound(taken, version)
				version++
				taken[0].ResourceVersion = version
				x.Upsert(taken[0])
			}
			if n := x.Available(p); n != size.n {
				b.Errorf("%d of %d are left", n, size.n)
			}
		})
	}
}

// BenchmarkMemory reports what the index takes for a sandbox whose strings the
// watch cache holds, too.
func BenchmarkMemory(b *testing.B) {
	for _, size := range poolSizes {
		b.Run("pool="+size.name, func(b *testing.B) {
			var bytes float64
			for b.Loop() {
				bytes = perSandbox(size.n, false)
			}
			b.ReportMetric(bytes, "bytes/sandbox")
		})
	}
}
