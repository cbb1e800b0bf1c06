// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// A process that ends soon runs for a moment as well.
func TestWorked(t *testing.T) {
	for name, test := range map[string]struct {
		sandbox builder
		want    bool
	}{
		"starting":         {starting("a"), false},
		"runs":             {starting("a").phase(v1alpha1.SandboxRunning).ip("127.1.1.1"), false},
		"not ready":        {available("a").ready(false), false},
		"available":        {available("a"), true},
		"ready, but ended": {available("a").phase(v1alpha1.SandboxSucceeded), false},
	} {
		if got := worked(test.sandbox.Sandbox); got != test.want {
			t.Errorf("%s: worked: %v", name, got)
		}
	}
	claimed := available("a")
	claimed.OwnerReferences = nil
	if !worked(claimed.Sandbox) {
		t.Error("one that was claimed at once does not count")
	}
}

func TestSetsOfTemplate(t *testing.T) {
	owned := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "a-b-x1", OwnerReferences: []metav1.OwnerReference{{Kind: "SandboxSet", Name: "owner", Controller: new(true)}},
		Labels: map[string]string{v1alpha1.LabelSandboxPool: "labelled"},
	}}
	got := map[string]bool{}
	for _, key := range setsOfTemplate(owned) {
		got[key.String()] = true
	}
	if len(got) != 3 || !got["n/owner"] || !got["n/labelled"] || !got["n/a-b"] {
		t.Errorf("got %v", got)
	}
	if got := setsOfTemplate(&v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "python"}}); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

// A claim may have taken a sandbox before the cache shows it at all.
func TestSetOf(t *testing.T) {
	pooled := available("a").label(v1alpha1.LabelSandboxPool, "whatever the user wrote")
	if got := setOf(pooled.Sandbox); got.String() != "ns/pool" {
		t.Errorf("pooled: %s", got)
	}
	claimed := available("a")
	claimed.OwnerReferences = nil
	if got := setOf(claimed.Sandbox); got.String() != "ns/pool" {
		t.Errorf("claimed: %s", got)
	}
}
