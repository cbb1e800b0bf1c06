// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package dryrunpolicy

import (
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const ownUser = "system:serviceaccount:anywhere:sandlot-apiserver"

func newPolicy(change func(*admissionregistrationv1.ValidatingAdmissionPolicySpec)) *admissionregistrationv1.ValidatingAdmissionPolicy {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: Name}, Spec: Spec()}
	if change != nil {
		change(&policy.Spec)
	}
	return policy
}

func newBinding(change func(*admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec)) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "binding"}}
	binding.Spec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}
	if change != nil {
		change(&binding.Spec)
	}
	return binding
}

// TestHolds: whatever lets a user through for whom the policy is made is
// distinguished from what does not.
func TestHolds(t *testing.T) {
	type policySpec = admissionregistrationv1.ValidatingAdmissionPolicySpec
	type bindingSpec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec
	for name, test := range map[string]struct {
		user      string
		policy    func(*policySpec)
		binding   func(*bindingSpec)
		noPolicy  bool
		noBinding bool
		want      error
	}{
		"as it is shipped": {},
		"in other words": {policy: func(s *policySpec) {
			s.Validations[0].Message, s.Validations[0].Reason = "no", nil
		}},
		"stricter": {policy: func(s *policySpec) {
			s.Validations = append(s.Validations, admissionregistrationv1.Validation{Expression: "request.namespace != 'kube-system'"})
		}},
		"none":           {noPolicy: true, want: ErrMissing},
		"ignores errors": {policy: func(s *policySpec) { s.FailurePolicy = new(admissionregistrationv1.Ignore) }, want: ErrOther},
		"allows all":     {policy: func(s *policySpec) { s.Validations[0].Expression = "true" }, want: ErrOther},
		"says nothing":   {policy: func(s *policySpec) { s.Validations = nil }, want: ErrOther},
		"one more filter": {policy: func(s *policySpec) {
			s.MatchConditions = append(s.MatchConditions, admissionregistrationv1.MatchCondition{Name: "never", Expression: "false"})
		}, want: ErrOther},
		"other users": {policy: func(s *policySpec) { s.MatchConditions[0].Expression = `request.userInfo.username == "other"` }, want: ErrOther},
		"some namespaces": {policy: func(s *policySpec) {
			s.MatchConstraints.NamespaceSelector.MatchLabels = map[string]string{"a": "b"}
		}, want: ErrOther},
		"other kinds": {policy: func(s *policySpec) { s.MatchConstraints.ResourceRules[0].Resources = []string{"services"} }, want: ErrOther},
		"but not for": {policy: func(s *policySpec) {
			s.MatchConstraints.ExcludeResourceRules = s.MatchConstraints.ResourceRules
		}, want: ErrOther},
		"with parameters":   {policy: func(s *policySpec) { s.ParamKind = &admissionregistrationv1.ParamKind{Kind: "ConfigMap"} }, want: ErrOther},
		"not bound":         {noBinding: true, want: ErrNotBound},
		"another's binding": {binding: func(s *bindingSpec) { s.PolicyName = "other" }, want: ErrNotBound},
		"only warns": {binding: func(s *bindingSpec) {
			s.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
		}, want: ErrNotBound},
		"bound to some": {binding: func(s *bindingSpec) {
			s.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		}, want: ErrNotBound},
		"bound by a parameter": {binding: func(s *bindingSpec) { s.ParamRef = &admissionregistrationv1.ParamRef{Name: "x"} }, want: ErrNotBound},
	} {
		t.Run(name, func(t *testing.T) {
			policy := newPolicy(test.policy)
			if test.noPolicy {
				policy = nil
			}
			bindings := []*admissionregistrationv1.ValidatingAdmissionPolicyBinding{newBinding(test.binding)}
			if test.noBinding {
				bindings = nil
			}
			if err := Holds(ownUser, policy, bindings); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
	for _, user := range []string{"admin", "system:serviceaccount:a:b:sandlot-apiserver", ownUser + "-2", "x" + ownUser} {
		if err := Holds(user, newPolicy(nil), []*admissionregistrationv1.ValidatingAdmissionPolicyBinding{newBinding(nil)}); err == nil {
			t.Errorf("user %s is held to dry runs", user)
		}
	}
}
