// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dryrunpolicy knows the ValidatingAdmissionPolicy that holds the API server to dry
// runs: for the API server, which uses the right that it bounds only while it is in force,
// and for checks, which say where it is not.
package dryrunpolicy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Name is the name of the policy.
	Name = "sandlot-apiserver-dry-runs"

	// account is the ServiceAccount that it is about.
	account = "sandlot-apiserver"
	// policyUser are the users that it is about, in the syntax that CEL and Go share.
	policyUser = "^system:serviceaccount:[^:]+:" + account + "$"
)

var policyUsers = regexp.MustCompile(policyUser)

// Spec returns what the policy is to say, as a cluster shows it: with the defaults filled in.
func Spec() admissionregistrationv1.ValidatingAdmissionPolicySpec {
	return admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: new(admissionregistrationv1.Fail),
		MatchConstraints: &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{},
			ObjectSelector:    &metav1.LabelSelector{},
			MatchPolicy:       new(admissionregistrationv1.Equivalent),
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{corev1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"pods"},
						Scope: new(admissionregistrationv1.AllScopes),
					},
				},
			}},
		},
		MatchConditions: []admissionregistrationv1.MatchCondition{{
			Name: account, Expression: fmt.Sprintf("request.userInfo.username.matches(%q)", policyUser),
		}},
		Validations: []admissionregistrationv1.Validation{{
			Expression: "has(request.dryRun) && request.dryRun",
			Message:    account + " may create pods in a dry run only",
			Reason:     new(metav1.StatusReasonForbidden),
		}},
	}
}

// Why the policy does not hold an account.
var (
	ErrMissing  = errors.New("there is no ValidatingAdmissionPolicy " + Name)
	ErrOther    = errors.New("ValidatingAdmissionPolicy " + Name + " does not say what it is to say")
	ErrNotBound = errors.New("no ValidatingAdmissionPolicyBinding makes ValidatingAdmissionPolicy " + Name + " deny in all namespaces")
)

// Holds returns nil if the policy lets a user create pods in dry runs only, in every
// namespace, and else the reason why it does not. policy is nil if there is none, and
// bindings are all that there are, of whatever policies.
func Holds(user string, policy *admissionregistrationv1.ValidatingAdmissionPolicy,
	bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding) error {
	switch {
	case policy == nil:
		return ErrMissing
	case !isStrict(&policy.Spec):
		return ErrOther
	case !slices.ContainsFunc(bindings, func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool { return Denies(b, Name) }):
		return ErrNotBound
	case !policyUsers.MatchString(user):
		return fmt.Errorf("ValidatingAdmissionPolicy %s is not about %s", Name, user)
	}
	return nil
}

// isStrict reports whether a policy refuses all that Spec does. It may refuse more,
// and say it in other words.
func isStrict(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) bool {
	want := Spec()
	denied := func(wanted admissionregistrationv1.Validation) bool {
		return slices.ContainsFunc(spec.Validations, func(v admissionregistrationv1.Validation) bool { return v.Expression == wanted.Expression })
	}
	return spec.ParamKind == nil &&
		equality.Semantic.DeepEqual(spec.FailurePolicy, want.FailurePolicy) &&
		equality.Semantic.DeepEqual(spec.MatchConstraints, want.MatchConstraints) &&
		equality.Semantic.DeepEqual(spec.MatchConditions, want.MatchConditions) &&
		!slices.ContainsFunc(want.Validations, func(v admissionregistrationv1.Validation) bool { return !denied(v) })
}

// Denies reports whether a binding puts a policy without parameters into force everywhere.
func Denies(binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding, policy string) bool {
	spec := &binding.Spec
	return spec.PolicyName == policy && spec.ParamRef == nil && spec.MatchResources == nil &&
		slices.Contains(spec.ValidationActions, admissionregistrationv1.Deny)
}
