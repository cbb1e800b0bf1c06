// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

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
	// PolicyName is the name of the ValidatingAdmissionPolicy that holds the API server
	// to dry runs.
	PolicyName = "sandlot-apiserver-dry-runs"

	// policyUser are the users that it is about, in the syntax that CEL and Go share.
	policyUser = "^system:serviceaccount:[^:]+:" + dryRunOwner + "$"
)

var policyUsers = regexp.MustCompile(policyUser)

// Policy returns the ValidatingAdmissionPolicy that holds the API server to dry runs,
// as a cluster shows it: with the defaults filled in.
func Policy() admissionregistrationv1.ValidatingAdmissionPolicySpec {
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
			Name: dryRunOwner, Expression: fmt.Sprintf("request.userInfo.username.matches(%q)", policyUser),
		}},
		Validations: []admissionregistrationv1.Validation{{
			Expression: "has(request.dryRun) && request.dryRun",
			Message:    dryRunOwner + " may create pods in a dry run only",
			Reason:     new(metav1.StatusReasonForbidden),
		}},
	}
}

var (
	errNoPolicy    = errors.New("there is no ValidatingAdmissionPolicy " + PolicyName)
	errOtherPolicy = errors.New("ValidatingAdmissionPolicy " + PolicyName + " does not say what it is to say")
	errNoBinding   = errors.New("no ValidatingAdmissionPolicyBinding makes ValidatingAdmissionPolicy " + PolicyName + " deny in all namespaces")
)

// heldToDryRuns returns nil if the policy lets a user create pods in dry runs only, in
// every namespace, and else the reason why it does not. policy is nil if there is none.
func heldToDryRuns(user string, policy *admissionregistrationv1.ValidatingAdmissionPolicy,
	bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding) error {
	switch {
	case policy == nil:
		return errNoPolicy
	case !isStrict(&policy.Spec):
		return errOtherPolicy
	case !slices.ContainsFunc(bindings, denies):
		return errNoBinding
	case !policyUsers.MatchString(user):
		return fmt.Errorf("ValidatingAdmissionPolicy %s is not about %s", PolicyName, user)
	}
	return nil
}

// isStrict reports whether a policy refuses all that Policy does. It may refuse more,
// and say it in other words.
func isStrict(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) bool {
	want := Policy()
	denied := func(wanted admissionregistrationv1.Validation) bool {
		return slices.ContainsFunc(spec.Validations, func(v admissionregistrationv1.Validation) bool { return v.Expression == wanted.Expression })
	}
	return spec.ParamKind == nil &&
		equality.Semantic.DeepEqual(spec.FailurePolicy, want.FailurePolicy) &&
		equality.Semantic.DeepEqual(spec.MatchConstraints, want.MatchConstraints) &&
		equality.Semantic.DeepEqual(spec.MatchConditions, want.MatchConditions) &&
		!slices.ContainsFunc(want.Validations, func(v admissionregistrationv1.Validation) bool { return !denied(v) })
}

// denies reports whether a binding puts the policy into force everywhere.
func denies(binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
	spec := &binding.Spec
	return spec.PolicyName == PolicyName && spec.ParamRef == nil && spec.MatchResources == nil &&
		slices.Contains(spec.ValidationActions, admissionregistrationv1.Deny)
}
