// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	listers "k8s.io/client-go/listers/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/install/dryrunpolicy"
)

const ownUser = "system:serviceaccount:anywhere:sandlot-apiserver"

// counted answers every question with nothing.
type counted struct{ asked int }

func (c *counted) Pod(context.Context, *unstructured.Unstructured) Result {
	c.asked++
	return Result{}
}

// TestGate: a server that may create pods asks only while a policy holds it to dry runs.
// What the cluster itself says to it is tested in pkg/e2e/cluster.
func TestGate(t *testing.T) {
	policies := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	bindings := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	pods := &counted{}
	gate := NewGate(GateOptions{
		Pods:     pods,
		Policies: listers.NewValidatingAdmissionPolicyLister(policies),
		Bindings: listers.NewValidatingAdmissionPolicyBindingLister(bindings),
	})
	want := func(state GateState, reason error) {
		t.Helper()
		if got, err := gate.state(); got != state || !errors.Is(err, reason) {
			t.Errorf("the gate is %s (%v), want %s (%v)", got, err, state, reason)
		}
		var warnings []string
		if state != GateOn { // and users learn no more
			warnings = []string{"the cluster is not asked about its pods"}
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
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: dryrunpolicy.Name}, Spec: dryrunpolicy.Spec()}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "binding"}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = dryrunpolicy.Name, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	want(GateOff, errUnknownSelf)
	gate.self.Store(&self{user: ownUser})
	want(GateOff, errMayNot)
	gate.self.Store(&self{user: ownUser, mayCreate: true})
	want(GateUnguarded, dryrunpolicy.ErrMissing)
	for _, err := range []error{policies.Add(policy), bindings.Add(binding)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want(GateOn, nil)
	gate.self.Store(&self{user: ownUser}) // as after an upgrade that leaves the policy behind
	want(GateOff, errMayNot)
	gate.self.Store(&self{user: ownUser, mayCreate: true})
	if err := bindings.Delete(binding); err != nil {
		t.Fatal(err)
	}
	want(GateUnguarded, dryrunpolicy.ErrNotBound)
	gate.self.Store(&self{user: "admin", mayCreate: true})
	if err := bindings.Add(binding); err != nil {
		t.Fatal(err)
	}
	if state, err := gate.state(); state != GateUnguarded {
		t.Errorf("for a user that the policy is not about the gate is %s (%v)", state, err)
	}
}

// TestGateWaits: as long as not all policies are known, the gate judges none, and asks nothing.
func TestGateWaits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	looked := 0
	gate := NewGate(GateOptions{
		Clock: clock.RealClock{},
		Synced: []cache.InformerSynced{func() bool {
			if looked++; looked == 3 {
				cancel()
			}
			return false
		}},
	})
	gate.Run(ctx)
	if state, err := gate.state(); state != GateOff || !errors.Is(err, errUnknownSelf) || looked < 3 {
		t.Errorf("the gate is %s (%v) after %d looks", state, err, looked)
	}
}
