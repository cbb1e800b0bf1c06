// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/findings"
	"github.com/sandlot-io/sandlot/pkg/localpki"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// checkProgram builds what has the command check.
func checkProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := program.Build(dir, "kubectl-sandlot"); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "kubectl-sandlot")
}

// checked runs the check as a user, and returns what it found that is not well, as
// "level check: objects", and with what it ended.
func checked(t *testing.T, program, kubeconfig string) (found []string, code int) {
	t.Helper()
	all, code := runCheck(t, program, kubeconfig)
	for _, f := range all {
		if f.Level != findings.OK {
			found = append(found, fmt.Sprintf("%s %s: %s", f.Level, f.Check, strings.Join(f.Objects, ", ")))
		}
		if f.Level != findings.OK && (f.Message == "" || f.Action == "") {
			t.Errorf("%+v does not say what is wrong or what to do", f)
		}
	}
	return found, code
}

func runCheck(t *testing.T, program, kubeconfig string) ([]findings.Finding, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "check", "--kubeconfig", kubeconfig, "-o", "json")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if _, exited := errors.AsType[*exec.ExitError](cmd.Run()); !exited && cmd.ProcessState == nil {
		t.Fatal("the check did not run")
	}
	var report struct{ Findings []findings.Finding }
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatalf("%v: %s%s", err, &stdout, &stderr)
	}
	return report.Findings, cmd.ProcessState.ExitCode()
}

// TestCheck checks an install that is well, and then breaks it in one place after another.
// The programs of this cluster are processes, so pods that stand for them are made of images
// that nothing runs.
func TestCheck(t *testing.T) {
	t.Parallel()
	check := checkProgram(t)
	s := newSite(t)
	if all, code := runCheck(t, check, s.Kubeconfig()); code != 1 || len(all) != 1 || !strings.Contains(all[0].Message, "Sandlot is not installed") {
		t.Errorf("without an install it ended with %d and found %+v", code, all)
	}

	installed := s.install(t, controlplane.SandlotOptions{})
	const ns = "sandlot-system"
	for _, name := range []string{"sandlot-apiserver", "sandlot-controller-manager"} {
		s.standIn(t, ns, name)
	}
	expect.FilledPool(t, s.clients, metav1.NamespaceDefault, 1)
	// Not looked at: etcd, which has no pods here. Warned of: what an install need not have.
	well := []string{"NotLookedAt Etcd: ", "Warning Quotas: Namespace default", "Warning Backup: CronJob sandlot-system/sandlot-backup"}
	must := func(when string, wantCode int, want ...string) {
		t.Helper()
		expect.Eventually(t.Context(), t, func(context.Context) error {
			found, code := checked(t, check, s.Kubeconfig())
			for _, line := range append(append([]string{}, well...), want...) {
				if !slices.Contains(found, line) {
					return fmt.Errorf("%s: %q is not in what was found: %q", when, line, found)
				}
			}
			if len(found) != len(well)+len(want) || code != wantCode {
				return fmt.Errorf("%s: found %q and ended with %d, want %q and %d", when, found, code, want, wantCode)
			}
			return nil
		})
	}
	must("well", 0)

	checker := s.checker(t)
	if found, code := checked(t, check, checker); !slices.Contains(found, "NotLookedAt Certificates: ") || len(found) != len(well)+1 || code != 0 {
		t.Errorf("as who has sandlot-checker: found %q and ended with %d", found, code)
	}

	kube := s.kube
	binding, err := kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(t.Context(), "sandlot-apiserver-dry-runs", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(t.Context(), binding.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	must("without a binding", 1, "Error Policies: ValidatingAdmissionPolicy sandlot-apiserver-dry-runs")
	binding.ResourceVersion, binding.UID = "", ""
	if _, err := kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	role, err := kube.RbacV1().ClusterRoles().Get(t.Context(), "sandlot-controller-manager", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rules := role.Rules
	role.Rules = without(rules, "agents.kruise.io", "sandboxsets/status")
	if role, err = kube.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	must("without a right", 1, "Error Rights: ServiceAccount sandlot-system/sandlot-controller-manager")
	role.Rules = rules
	if _, err := kube.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	scale := func(replicas int) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
		if _, err := kube.AppsV1().Deployments(ns).Patch(t.Context(), "sandlot-apiserver", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	scale(0)
	must("scaled to 0", 1, "Error Workloads: Deployment sandlot-apiserver")
	scale(1)

	if err := kube.NetworkingV1().NetworkPolicies(ns).Delete(t.Context(), "default-deny", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	well = append(well, "Warning Policies: Namespace sandlot-system")
	must("without a policy", 0)

	// No more controller manager, which would mend the caBundle, and a CA of another.
	if err := installed.Controllers().Stop(); err != nil {
		t.Fatal(err)
	}
	must("without controllers", 1, "Error Leader: Lease sandlot-system/sandlot-controller-manager")
	pki, err := localpki.Ensure(t.TempDir(), []string{"127.0.0.1"}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	s.setBundle(t, pki.CA)
	expect.Eventually(t.Context(), t, func(context.Context) error {
		found, code := checked(t, check, s.Kubeconfig())
		if !slices.Contains(found, "Error APIServices: APIService v1alpha1.agents.kruise.io") || code != 1 {
			return fmt.Errorf("with the CA of another: found %q and ended with %d", found, code)
		}
		return nil
	})
}

// standIn makes a Deployment of the name of a program, with pods that do nothing.
func (s *site) standIn(t *testing.T, namespace, name string) {
	t.Helper()
	labels := map[string]string{"app": "stands-in-for-" + name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec = corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "program", Image: name + ":v0.3.0", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}
	if _, err := s.kube.AppsV1().Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// checker is the kubeconfig of a user with the two roles sandlot-checker.
func (s *site) checker(t *testing.T) string {
	t.Helper()
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "checker"}}
	_, err := s.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "checkers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sandlot-checker"},
		Subjects:   subjects,
	}, metav1.CreateOptions{})
	if err == nil {
		_, err = s.kube.RbacV1().RoleBindings(controlplane.Namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "checkers"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "sandlot-checker"},
			Subjects:   subjects,
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := s.UserKubeconfig("checker")
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// setBundle sets the caBundle of the APIService.
func (s *site) setBundle(t *testing.T, ca []byte) {
	t.Helper()
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"caBundle": ca}})
	if err != nil {
		t.Fatal(err)
	}
	services := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	if _, err := client.Resource(services).Patch(t.Context(), "v1alpha1.agents.kruise.io", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// without are rules except for a resource of a group.
func without(rules []rbacv1.PolicyRule, group, resource string) (left []rbacv1.PolicyRule) {
	for _, rule := range rules {
		if slices.Contains(rule.APIGroups, group) {
			rule.Resources = slices.DeleteFunc(slices.Clone(rule.Resources), func(r string) bool { return r == resource })
		}
		if len(rule.Resources) > 0 {
			left = append(left, rule)
		}
	}
	return left
}
