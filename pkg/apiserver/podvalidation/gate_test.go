// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	listers "k8s.io/client-go/listers/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
)

// counted answers every question with nothing.
type counted struct{ asked int }

func (c *counted) Pod(context.Context, *unstructured.Unstructured) Result {
	c.asked++
	return Result{}
}

// TestGate: whoever may create pods asks only while a policy holds them to dry runs. What
// the cluster itself says to it is tested in pkg/e2e/cluster.
func TestGate(t *testing.T) {
	policies := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	bindings := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	pods := &counted{}
	gate := NewGate(GateOptions{
		Pods:     pods,
		Policies: listers.NewValidatingAdmissionPolicyLister(policies),
		Bindings: listers.NewValidatingAdmissionPolicyBindingLister(bindings),
	})
	const closed = "the cluster is not asked about its pods: "
	want := func(state GateState, warnings ...string) {
		t.Helper()
		if got, _ := gate.state(); got != state {
			t.Errorf("the gate is %s, want %s", got, state)
		}
		before := pods.asked
		result := gate.Pod(t.Context(), &unstructured.Unstructured{})
		if diff := cmp.Diff(warnings, result.Warnings); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
		if asked := pods.asked > before; asked != (state == GateOn) {
			t.Errorf("the cluster is asked: %v", asked)
		}
	}
	want(GateOff, closed+"it has not said yet what sandlot-apiserver may do")
	gate.self.Store(&self{user: ownUser})
	want(GateOff, closed+"sandlot-apiserver may not create pods, not even in a dry run")
	gate.self.Store(&self{user: ownUser, mayCreate: true})
	const unguarded = closed + "sandlot-apiserver may create pods, and nothing holds it to dry runs: "
	want(GateUnguarded, unguarded+errNoPolicy.Error())
	for _, err := range []error{policies.Add(newPolicy(nil)), bindings.Add(newBinding(nil))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want(GateOn)
	gate.self.Store(&self{user: ownUser}) // as after an upgrade that leaves the policy behind
	want(GateOff, closed+"sandlot-apiserver may not create pods, not even in a dry run")
	gate.self.Store(&self{user: ownUser, mayCreate: true})
	if err := bindings.Delete(newBinding(nil)); err != nil {
		t.Fatal(err)
	}
	want(GateUnguarded, unguarded+errNoBinding.Error())
	gate.self.Store(&self{user: "admin", mayCreate: true})
	if err := bindings.Add(newBinding(nil)); err != nil {
		t.Fatal(err)
	}
	want(GateUnguarded, unguarded+"ValidatingAdmissionPolicy sandlot-apiserver-dry-runs is not about admin")
}
