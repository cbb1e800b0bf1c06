// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"slices"
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

func setNames(sets []*v1alpha1.SandboxSet) []string {
	var all []string
	for _, set := range sets {
		all = append(all, set.Name+"@"+set.ResourceVersion)
	}
	return all
}

func TestSetCache(t *testing.T) {
	var c SetCache
	expect := func(what string, want ...string) {
		t.Helper()
		if got := setNames(c.Using("ns", "py")); !slices.Equal(got, want) {
			t.Errorf("%s: using py are %v, want %v", what, got, want)
		}
	}
	if c.hasSynced() {
		t.Error("synced before it has heard of anything")
	}
	c.listed("ns", []*v1alpha1.SandboxSet{setOf("early", "py", atVersion(2))}, 2)
	expect("a list before the watch", "early@2")
	c.Replace([]*v1alpha1.SandboxSet{setOf("b", "py", atVersion(3)), setOf("a", "py", patched, atVersion(4))}, 9)
	expect("listed", "b@3", "a@4")
	if !c.hasSynced() || c.Set("ns", "early") != nil || c.Set("ns", "a") == nil {
		t.Error("the list is not the whole picture")
	}

	before := c.Using("ns", "py")
	if old := c.Change(setOf("a", "py", atVersion(10))); old == nil || old.ResourceVersion != "4" {
		t.Errorf("before the change it was %v", old)
	}
	expect("without its patch any more", "a@10", "b@3")
	if got := setNames(before); !slices.Equal(got, []string{"b@3", "a@4"}) {
		t.Errorf("what a reader has was changed to %v", got)
	}
	if got := c.Replicas()[poolindex.PoolOf(setOf("a", ""))]; got != 2 {
		t.Errorf("is shown to want %d", got)
	}
	c.Change(setOf("b", "go", atVersion(11)))
	expect("one of another template", "a@10")
	if got := setNames(c.Using("ns", "go")); !slices.Equal(got, []string{"b@11"}) {
		t.Errorf("using go are %v", got)
	}

	c.listed("ns", []*v1alpha1.SandboxSet{setOf("a", "py", atVersion(10)), setOf("c", "py", atVersion(12))}, 12)
	expect("a list ahead of the watch", "a@10", "c@12")
	if c.Set("ns", "b") != nil || len(c.Using("ns", "go")) != 0 {
		t.Error("a set that is not in the list is still there")
	}
	c.Change(setOf("c", "py", atVersion(12)))
	c.Change(setOf("x", "py", elsewhere, atVersion(13)))
	c.Delete(setOf("c", "py", atVersion(14)))
	expect("deleted", "a@10")
	c.listed("ns", []*v1alpha1.SandboxSet{setOf("c", "py", atVersion(12))}, 13)
	expect("a list behind the watch", "a@10")

	// The watch is behind a list.
	c.listed("ns", []*v1alpha1.SandboxSet{setOf("a", "py", atVersion(20))}, 20)
	c.Change(setOf("a", "py", atVersion(15)))
	expect("an old change", "a@20")
	other := setOf("a", "py", atVersion(16))
	other.UID = "before"
	c.Delete(other)
	expect("the end of one of the same name", "a@20")

	// One is read by its name.
	if changes := c.read(setOf("d", "py", atVersion(14))); changes != nil {
		t.Errorf("a read behind the watch changed %v", changes)
	}
	if changes := c.read(setOf("d", "py", atVersion(21))); len(changes) != 1 || changes[0].Before != nil {
		t.Errorf("a read ahead of the watch changed %v", changes)
	}
	if changes := c.read(setOf("d", "py", atVersion(21))); changes != nil {
		t.Errorf("the same read again changed %v", changes)
	}
	expect("a read ahead of the watch", "a@20", "d@21")
	c.Change(setOf("d", "py", atVersion(21)))
	c.Delete(setOf("d", "py", atVersion(22)))
	expect("deleted", "a@20")

	if gone := c.Replace(nil, 30); len(gone) != 2 {
		t.Errorf("gone are %v, want both that were left", gone)
	}
	expect("an empty list")
	if len(c.users) != 0 || len(c.Replicas()) != 0 {
		t.Errorf("something is left: %v", c.users)
	}
}

// TestSetsOfOneNamespaceAreCompared checks that a list of the sets of one namespace looks
// at no set of another.
func TestSetsOfOneNamespaceAreCompared(t *testing.T) {
	var c SetCache
	c.Change(setOf("gone", ""))
	c.sets["other"] = map[string]*v1alpha1.SandboxSet{"unreadable": nil} // who looks at it panics
	changes := c.listed("ns", []*v1alpha1.SandboxSet{setOf("new", "")}, 9)
	if len(changes) != 2 || c.Set("ns", "gone") != nil || c.Set("ns", "new") == nil {
		t.Errorf("the list changes %+v", changes)
	}
}
