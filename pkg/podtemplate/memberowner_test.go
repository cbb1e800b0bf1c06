// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// TestMembersKeepTheirOwner: a member is controlled by its set in the words of the group that
// every install serves, also if the set is a warm pool of agent-sandbox, which an edit of its
// update type makes it, and unmakes.
func TestMembersKeepTheirOwner(t *testing.T) {
	for _, kind := range []v1alpha1.SandboxSetUpdateType{"", v1alpha1.SetUpdateRolling, v1alpha1.SetUpdateRecreate, v1alpha1.SetUpdateOnReplenish} {
		set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "u"}}
		set.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: "py"}
		set.Spec.UpdateStrategy.Type = kind
		member, err := podtemplate.NewSandbox(set, "r", podtemplate.Inline(rawOf(`{"spec":{"containers":[{"name":"main"}]}}`)))
		if err != nil {
			t.Fatal(err)
		}
		owner := metav1.GetControllerOf(member)
		if owner == nil || owner.APIVersion != "agents.kruise.io/v1alpha1" || owner.Kind != "SandboxSet" || owner.UID != "u" {
			t.Errorf("%q: the owner is %+v", kind, owner)
		}
	}
}
