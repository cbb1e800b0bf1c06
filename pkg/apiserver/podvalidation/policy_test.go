// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

import (
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const ownUser = "system:serviceaccount:anywhere:sandlot-apiserver"

func newPolicy(change func(*admissionregistrationv1.ValidatingAdmissionPolicySpec)) *admissionregistrationv1.ValidatingAdmissionPolicy {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: PolicyName}, Spec: Policy()}
	if change != nil {
		change(&policy.Spec)
	}
	return policy
}

func newBinding(change func(*admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec)) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "binding"}}
	binding.Spec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: PolicyName, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}
	if change != nil {
		change(&binding.Spec)
	}
	return binding
}

// TestHeldToDryRuns: whatever lets a user through for whom the policy is made is told from
// what does not.
func TestHeldToDryRuns(t *testing.T) {
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
		"none":           {noPolicy: true, want: errNoPolicy},
		"ignores errors": {policy: func(s *policySpec) { s.FailurePolicy = new(admissionregistrationv1.Ignore) }, want: errOtherPolicy},
		"allows all":     {policy: func(s *policySpec) { s.Validations[0].Expression = "true" }, want: errOtherPolicy},
		"says nothing":   {policy: func(s *policySpec) { s.Validations = nil }, want: errOtherPolicy},
		"one more filter": {policy: func(s *policySpec) {
			s.MatchConditions = append(s.MatchConditions, admissionregistrationv1.MatchCondition{Name: "never", Expression: "false"})
		}, want: errOtherPolicy},
		"other users": {policy: func(s *policySpec) { s.MatchConditions[0].Expression = `request.userInfo.username == "other"` }, want: errOtherPolicy},
		"some namespaces": {policy: func(s *policySpec) {
			s.MatchConstraints.NamespaceSelector.MatchLabels = map[string]string{"a": "b"}
		}, want: errOtherPolicy},
		"other kinds": {policy: func(s *policySpec) { s.MatchConstraints.ResourceRules[0].Resources = []string{"services"} }, want: errOtherPolicy},
		"but not for": {policy: func(s *policySpec) {
			s.MatchConstraints.ExcludeResourceRules = s.MatchConstraints.ResourceRules
		}, want: errOtherPolicy},
		"with parameters":   {policy: func(s *policySpec) { s.ParamKind = &admissionregistrationv1.ParamKind{Kind: "ConfigMap"} }, want: errOtherPolicy},
		"not bound":         {noBinding: true, want: errNoBinding},
		"another's binding": {binding: func(s *bindingSpec) { s.PolicyName = "other" }, want: errNoBinding},
		"only warns": {binding: func(s *bindingSpec) {
			s.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
		}, want: errNoBinding},
		"bound to some": {binding: func(s *bindingSpec) {
			s.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		}, want: errNoBinding},
		"bound by a parameter": {binding: func(s *bindingSpec) { s.ParamRef = &admissionregistrationv1.ParamRef{Name: "x"} }, want: errNoBinding},
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
			if err := heldToDryRuns(ownUser, policy, bindings); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
	for _, user := range []string{"admin", "system:serviceaccount:a:b:sandlot-apiserver", ownUser + "-2", "x" + ownUser} {
		if err := heldToDryRuns(user, newPolicy(nil), []*admissionregistrationv1.ValidatingAdmissionPolicyBinding{newBinding(nil)}); err == nil {
			t.Errorf("user %s is held to dry runs", user)
		}
	}
}
