// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"fmt"
	"testing"
)

// onNode returns a candidate of py that runs on a node.
func onNode(name, revision, node string, version uint64) Candidate {
	c := inPy(name, revision, version)
	c.Node = node
	return c
}

// TestNodes: sandboxes on nodes that take no pods come after all others of their pool, and
// are handed out when there are no others.
func TestNodes(t *testing.T) {
	// r1 and r2 appear in this order.
	stock := []Candidate{
		onNode("a1", "r1", "n1", 1), onNode("a2", "r2", "n1", 2), onNode("b1", "r1", "n2", 3),
		onNode("b2", "r2", "n2", 4), onNode("x2", "r2", "", 5),
	}
	both := map[string]bool{"n1": true, "n2": true}
	tests := map[string]struct {
		do   func(*Index)
		want string
	}{
		"no list of nodes":     {func(*Index) {}, "a2 b2 x2 a1 b1"},
		"news before the list": {func(x *Index) { x.Nodes.SetTakesPods("n1", false) }, "a2 b2 x2 a1 b1"},
		"both take pods":       {func(x *Index) { x.Nodes.Replace(both) }, "a2 b2 x2 a1 b1"},
		"one takes none":       {func(x *Index) { x.Nodes.Replace(map[string]bool{"n1": false, "n2": true}) }, "b2 x2 b1 a2 a1"},
		"one is gone":          {func(x *Index) { x.Nodes.Replace(map[string]bool{"n2": true}) }, "b2 x2 b1 a2 a1"},
		"none takes pods":      {func(x *Index) { x.Nodes.Replace(map[string]bool{"n1": false, "n2": false}) }, "x2 a2 b2 a1 b1"},
		"there are none":       {func(x *Index) { x.Nodes.Replace(nil) }, "x2 a2 b2 a1 b1"},
		"the older is current": {func(x *Index) { x.Nodes.Replace(map[string]bool{"n1": true}); x.MarkTarget(py, "r1") }, "a1 a2 x2 b1 b2"},
		"one ceases to":        {func(x *Index) { x.Nodes.Replace(both); x.Nodes.SetTakesPods("n2", false) }, "a2 x2 a1 b2 b1"},
		"it takes pods again": {func(x *Index) {
			x.Nodes.Replace(both)
			x.Nodes.SetTakesPods("n2", false)
			x.Nodes.SetTakesPods("n2", true)
		}, "a2 x2 b2 a1 b1"},
		"another list": {func(x *Index) { x.Nodes.Replace(both); x.Nodes.Replace(map[string]bool{"n1": true}) }, "a2 x2 a1 b2 b1"},
		"it is said again": {func(x *Index) {
			x.Nodes.Replace(both)
			x.Nodes.SetTakesPods("n1", true)
			x.Nodes.SetTakesPods("n9", false)
		}, "a2 b2 x2 a1 b1"},
		"none is known any more": {func(x *Index) { x.Nodes.Replace(map[string]bool{"n2": true}); x.Nodes.Forget() }, "b2 x2 a2 b1 a1"},
		"none was ever known":    {func(x *Index) { x.Nodes.Forget() }, "a2 b2 x2 a1 b1"},
		"known once more":        {func(x *Index) { x.Nodes.Replace(both); x.Nodes.Forget(); x.Nodes.Replace(map[string]bool{"n2": true}) }, "b2 x2 b1 a2 a1"},
		"a sandbox changes node": {func(x *Index) { x.Nodes.Replace(map[string]bool{"n2": true}); x.Upsert(onNode("a2", "r2", "n2", 9)) }, "b2 x2 a2 b1 a1"},
		"released on its node": {func(x *Index) {
			x.Nodes.Replace(both)
			cs := x.Take(py, 1)
			x.Nodes.SetTakesPods("n1", false)
			x.Release(cs)
		}, "b2 x2 b1 a2 a1"},
		"a revision is suspended": {func(x *Index) {
			x.Nodes.Replace(both)
			x.Suspensions.Suspend(py, "r2", x.Suspensions.Resumes())
			x.Nodes.SetTakesPods("n1", false)
			x.Upsert(onNode("b2", "r2", "n1", 9))
		}, "b1 a1"},
		"the last one of a suspended revision changes nodes": {func(x *Index) {
			x.Nodes.Replace(map[string]bool{"n2": true})
			x.Remove("ns", "a1", 8)
			x.Suspensions.Suspend(py, "r1", x.Suspensions.Resumes())
			x.Upsert(onNode("b1", "r1", "n1", 9))
		}, "b2 x2 a2"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := indexOf(stock...)
			tc.do(x)
			if got := x.Available(py); got != len(peek(x, py, 9)) {
				t.Errorf("%d are available of %q", got, names(peek(x, py, 9)))
			}
			if got := names(peek(x, py, 9)); got != tc.want {
				t.Errorf("Peek = %q, want %q", got, tc.want)
			}
			if got := names(x.Take(py, 9)); got != tc.want {
				t.Errorf("Take = %q, want %q", got, tc.want)
			}
		})
	}
}

// TestMoveDuringTakes: what comes and goes between two batches of sandboxes that change
// places is where it belongs at the end.
func TestMoveDuringTakes(t *testing.T) {
	const n = 10 * moveBatch
	x := New()
	x.Nodes.Replace(map[string]bool{"n1": true, "n2": true})
	for i := range n {
		x.Upsert(onNode(fmt.Sprint("old-", i), "r1", "n1", uint64(i+1)))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range n {
			x.Upsert(onNode(fmt.Sprint("new-", i), "r1", "n1", uint64(n+i+1)))
			x.Remove("ns", fmt.Sprint("old-", 2*i), uint64(2*n+i))
			x.Release(x.Take(py, 1))
		}
	}()
	for i := range 21 {
		x.Nodes.SetTakesPods("n1", i%2 == 1)
	}
	<-done
	if got := x.Peek(py, 1, false); len(got) > 0 {
		t.Errorf("%v is not avoided on a node that takes no pods", got)
	}
	if got, want := len(x.Peek(py, 3*n, true)), n+n/2; got != want {
		t.Errorf("%d sandboxes are avoided, want %d", got, want)
	}
}
