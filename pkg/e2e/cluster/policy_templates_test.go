// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestPolicyAgainstNetworkPolicies applies the expression of docs/install.md, which
// keeps who may write templates from opening the network of a namespace.
func TestPolicyAgainstNetworkPolicies(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	content, err := os.ReadFile(filepath.Join(repository(t), "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, expression, _ := strings.Cut(string(content), "```cel no-network-policies\n")
	expression, _, found := strings.Cut(expression, "\n```\n")
	if !found {
		t.Fatal("docs/install.md has no such expression")
	}
	policy := c.validatingPolicy(t, ns, []string{"sandboxtemplates"}, admissionregistrationv1.Validation{
		Expression: expression, Reason: new(metav1.StatusReasonForbidden),
	})
	create := func(ctx context.Context, c *clients, spec v1alpha1.SandboxTemplateSpec) error {
		spec.Template = &runtime.RawExtension{Raw: []byte(smallTemplate)}
		template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: spec}
		_, err := c.SandboxTemplates(ns).Create(ctx, template, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	denied := func(err error) bool { return apierrors.IsForbidden(err) && strings.Contains(err.Error(), policy) }
	for i := range sandlot.APIServers() {
		server := c.direct(t, i)
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			if err := create(ctx, server, v1alpha1.SandboxTemplateSpec{NetworkPolicyManagement: v1alpha1.NetworkPolicyManaged}); !denied(err) {
				return fmt.Errorf("server %d does not deny it: %w", i, err)
			}
			return nil
		})
	}
	rules := &v1alpha1.SandboxNetworkPolicy{}
	for name, test := range map[string]struct {
		spec   v1alpha1.SandboxTemplateSpec
		denied bool
	}{
		"none":            {spec: v1alpha1.SandboxTemplateSpec{}},
		"unmanaged":       {spec: v1alpha1.SandboxTemplateSpec{NetworkPolicyManagement: v1alpha1.NetworkPolicyUnmanaged}},
		"rules":           {spec: v1alpha1.SandboxTemplateSpec{NetworkPolicy: rules}, denied: true},
		"rules, managed":  {spec: v1alpha1.SandboxTemplateSpec{NetworkPolicy: rules, NetworkPolicyManagement: v1alpha1.NetworkPolicyManaged}, denied: true},
		"default of ours": {spec: v1alpha1.SandboxTemplateSpec{NetworkPolicyManagement: v1alpha1.NetworkPolicyManaged}, denied: true},
	} {
		if err := create(t.Context(), c, test.spec); denied(err) != test.denied || !test.denied && err != nil {
			t.Errorf("%s: got %v, want denied %t", name, err, test.denied)
		}
	}
}
