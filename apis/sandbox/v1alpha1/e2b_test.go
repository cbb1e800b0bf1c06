// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "testing"

// TestIsE2B: a sandbox is one of the E2B API by what the server writes, all of it.
func TestIsE2B(t *testing.T) {
	sandbox := func(change func(*Sandbox)) *Sandbox {
		sb := &Sandbox{}
		sb.Namespace = "team-a"
		sb.Labels = map[string]string{LabelClaimName: "e1", LabelSandboxID: "team-a--e1"}
		sb.Annotations = map[string]string{AnnotationClaimedBy: "system:serviceaccount:team-a:sandlot-e2b"}
		if change != nil {
			change(sb)
		}
		return sb
	}
	if id, ok := IsE2B(sandbox(nil)); !ok || id != "team-a--e1" {
		t.Errorf("%q %v", id, ok)
	}
	for name, change := range map[string]func(*Sandbox){
		"no id":                func(sb *Sandbox) { delete(sb.Labels, LabelSandboxID) },
		"another's id":         func(sb *Sandbox) { sb.Labels[LabelSandboxID] = "team-b--e1" },
		"another claim":        func(sb *Sandbox) { sb.Labels[LabelClaimName] = "e2" },
		"another user":         func(sb *Sandbox) { sb.Annotations[AnnotationClaimedBy] = "mallory" },
		"another team's user":  func(sb *Sandbox) { sb.Annotations[AnnotationClaimedBy] = E2BUser("team-b") },
		"not claimed":          func(sb *Sandbox) { sb.Labels, sb.Annotations = nil, nil },
		"of another namespace": func(sb *Sandbox) { sb.Namespace = "team-b" },
		"kept as failed":       func(sb *Sandbox) { sb.Labels[LabelReservedFailedSandbox] = ClaimedTrue },
		"two dashes": func(sb *Sandbox) {
			sb.Labels[LabelClaimName], sb.Labels[LabelSandboxID] = "b--e1", "team-a--b--e1"
		},
		"without claim's name": func(sb *Sandbox) { delete(sb.Labels, LabelClaimName) },
	} {
		if _, ok := IsE2B(sandbox(change)); ok {
			t.Errorf("%s: it is one", name)
		}
	}
}

// TestSplitE2BSandboxID: a namespace may have two dashes, and a claim's name has none.
func TestSplitE2BSandboxID(t *testing.T) {
	for id, want := range map[string][2]string{
		"team--e1": {"team", "e1"}, "a--b--e1": {"a--b", "e1"}, "team-a--e1": {"team-a", "e1"},
		"": {}, "--": {}, "--e1": {}, "team--": {}, "team": {}, "team-e1": {},
	} {
		namespace, claim, ok := SplitE2BSandboxID(id)
		if got := [2]string{namespace, claim}; got != want || ok != (want[0] != "") {
			t.Errorf("%s: %q %v", id, got, ok)
		}
	}
}
