// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// TestNodesBeforePreference: what is on nodes that take no pods is handed out only when no
// pool has anything else, and then in the order of preference.
func TestNodesBeforePreference(t *testing.T) {
	b := newBench(t)
	for pool, nodes := range map[string][]string{"a": {"bad", "bad", "bad"}, "b": {"good", "bad"}, "c": {"good", "good"}} {
		for _, node := range nodes {
			b.next++
			b.index.Upsert(poolindex.Candidate{Pool: named(pool), Name: string(rune('a' + b.next)), ResourceVersion: b.next, Node: node})
		}
	}
	b.index.Nodes.Replace(map[string]bool{"good": true, "bad": false})
	sources := from("a", "/", "b", "/", "c")

	b.expectFrom("a preview", b.queue.Peek(sources, 5), map[string]int{"a": 2, "b": 1, "c": 2})
	b.expectFrom("a batch at once", b.queue.TakeFree(sources, 2, true), map[string]int{"b": 1, "c": 1})
	b.expect("more than there is, at once", b.queue.TakeFree(sources, 6, true), 0)
	w := b.waits(1, 3, false, sources)
	b.expectFrom("a claim in line", b.takes(w), map[string]int{"c": 1, "a": 2})
	b.expectFrom("what is left", b.queue.TakeFree(sources, 9, false), map[string]int{"a": 1, "b": 1})
}
