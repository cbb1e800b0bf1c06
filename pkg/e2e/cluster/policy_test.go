// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestPolicyOfInstall applies the policy of docs/install.md: pools are filled in
// namespaces that are for them, and the controllers can run nothing elsewhere, nor
// anything but sandboxes. That they may not read the ConfigMap of the runtimes, in the
// namespace that they look for it, holds up nothing but sandboxes with runtimes.
func TestPolicyOfInstall(t *testing.T) {
	t.Parallel()
	const meant, others = "meant", "others"
	s := newSite(t)
	s.install(t, controlplane.SandlotOptions{Overlay: "single", ControllerArgs: []string{
		"--namespace=elsewhere", "--leader-election-namespace=" + controlplane.Namespace, "--certificates-namespace=" + controlplane.Namespace,
	}})
	for _, ns := range []string{meant, others} {
		s.makeNamespace(t, ns)
	}
	label := []string{"label", "namespace", meant, "example.com/sandboxes=true"}
	if _, _, err := s.Kubectl(t.Context(), "", nil, label...); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(repository(t), "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, policy, _ := strings.Cut(string(content), "```yaml policy\n")
	policy, _, found := strings.Cut(policy, "\n```\n")
	if !found {
		t.Fatal("docs/install.md has no policy")
	}
	if _, _, err := s.Kubectl(t.Context(), "", strings.NewReader(policy), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}

	config := rest.CopyConfig(s.config)
	config.Impersonate.UserName = "system:serviceaccount:sandlot-system:sandlot-controller-manager"
	controllers := clientsFor(t, config)
	yes := true
	owner := metav1.OwnerReference{APIVersion: "agents.kruise.io/v1alpha1", Kind: "Sandbox", Name: "box", UID: "1", Controller: &yes}
	for what, c := range map[string]struct {
		ns     string
		owners []metav1.OwnerReference
		token  *bool
		denied string
	}{
		"another namespace":  {ns: others, owners: []metav1.OwnerReference{owner}, token: new(false), denied: "example.com/sandboxes"},
		"nobody's pod":       {ns: meant, token: new(false), denied: "pods of sandboxes only"},
		"with a token":       {ns: meant, owners: []metav1.OwnerReference{owner}, token: new(true), denied: "no token"},
		"a token by default": {ns: meant, owners: []metav1.OwnerReference{owner}, denied: "no token"},
		"a sandbox's":        {ns: meant, owners: []metav1.OwnerReference{owner}, token: new(false)},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "box", OwnerReferences: c.owners}}
		pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox:1"}}
		pod.Spec.AutomountServiceAccountToken = c.token
		expect.Eventually(t.Context(), t, func(ctx context.Context) error { // a policy takes a moment to be known
			_, err := controllers.kube.CoreV1().Pods(c.ns).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			switch {
			case c.denied == "" && err != nil:
				return fmt.Errorf("%s: %w", what, err)
			case c.denied != "" && (!apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.denied)):
				return fmt.Errorf("%s is not denied: %w", what, errors.Join(errors.New("it says"), err))
			}
			return nil
		})
	}
	testPolicyOfTokens(t, s, controllers, meant, others, string(content))
	for _, ns := range []string{meant, others} {
		testPolicyOfOwned(t, s.clients, controllers, ns, ns == meant)
	}
	expect.FilledPool(t, s, meant, 2)
	s.makeSandbox(t, meant, "agent", smallTemplate, func(s *v1alpha1.Sandbox) { s.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent"}} })
	s.awaitSandbox(t, meant, "agent", func(s *v1alpha1.Sandbox) error {
		if !strings.Contains(s.Status.Message, "ConfigMap elsewhere/sandbox-injection-config") {
			return errors.New("does not say what it waits for")
		}
		return hasCondition(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRuntimeNotFound)(s)
	})
	testServed(t, s.clients, meant)
	if _, err := s.SandboxSets(others).Create(t.Context(), builders.Set("pool", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		list, err := s.Sandboxes(others).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			for _, condition := range list.Items[i].Status.Conditions {
				if strings.Contains(condition.Message, "example.com/sandboxes") {
					return nil
				}
			}
		}
		return fmt.Errorf("no sandbox says why it has no pod: %+v", list.Items)
	})
}
