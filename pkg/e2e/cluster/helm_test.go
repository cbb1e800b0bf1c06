// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandlot-io/sandlot/pkg/install/certificates"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestChartIsValid applies what the chart renders as a dry run, which validates all of it but
// the pod of "helm test", whose account a dry run does not make: TestHelm runs it.
func TestChartIsValid(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]string{
		"default":    "etcd.mode=cluster",
		"embedded":   "etcd.mode=embedded",
		"small":      "etcd.mode=embedded,profile=small",
		"external":   "etcd.mode=external,etcd.external.endpoints={https://etcd.example.com:2379}",
		"everything": "backup.target=s3,gateway.enabled=true,agentSandbox.enabled=true,restricted.enabled=true,metrics.dashboard.enabled=true,podSecurityContext.fixedUser=false,image.pullSecrets[0].name=mirror",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHelm(t, plane)
			rendered := h.must(t, "template", release, h.chart, "--no-hooks", "--namespace", controlplane.Namespace, "--set", set)
			out, errOut, err := plane.Kubectl(t.Context(), "", strings.NewReader(rendered),
				"apply", "-f", "-", "--dry-run=server", "--validate=strict", "--output=json", "--server-side", "--force-conflicts")
			if err != nil || errOut != "" {
				t.Fatalf("kubectl complains: %v: %s", err, errOut)
			}
			// The controllers have put their CA there; applying leaves it alone.
			api := findObject(t, out, "APIService")
			if bundle, _, _ := unstructured.NestedString(api.Object, "spec", "caBundle"); bundle == "" {
				t.Error("applying takes the caBundle away from the APIService")
			}
		})
	}
}

// TestHelm is the life of a release, in a namespace that Helm makes: claims are served after
// an install, an upgrade and a rollback, and what the programs have made is theirs.
func TestHelm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	second, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir, ForTests: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Stop(); err != nil {
			t.Error(err)
		}
	})
	h := newHelm(t, second)
	at := []string{"--namespace", elsewhere}
	installed, err := second.Install(t.Context(), controlplane.SandlotOptions{
		BinDir: programs, Overlay: "single", Namespace: elsewhere, Pods: true,
		Apply: func(ctx context.Context, port int) (string, error) {
			if err := h.serveHere(port); err != nil {
				return "", err
			}
			args := append([]string{"install", release, h.chart, "--create-namespace", "--post-renderer", postRenderer, "--set", "etcd.mode=embedded,controllerManager.replicas=1"}, at...)
			if _, err := h.run(ctx, args...); err != nil {
				return "", err
			}
			return h.run(ctx, append([]string{"get", "manifest", release}, at...)...)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := clientsFor(t, second.Config())
	expect.FilledPool(t, c, metav1.NamespaceDefault, 1)
	served := func(claim string) {
		t.Helper()
		expect.FullPool(t, c, metav1.NamespaceDefault, "pool", 1)
		c.claim(t, metav1.NamespaceDefault, builders.Claim(claim, 1))
	}
	served("installed")
	h.must(t, append([]string{"test", release}, at...)...)
	if said, err := os.ReadFile(filepath.Join(dir, "log", "sandlot-test.log")); err != nil || !strings.Contains(string(said), "0 errors") {
		t.Errorf("the check says %s: %v", said, err)
	}
	bundle := caBundle(t, second)
	serving, err := c.kube.CoreV1().Secrets(elsewhere).Get(t.Context(), certificates.ServingSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// arguments are those of the API server, as the release says. The process that its pod
	// is starts again, with those of the install.
	arguments := func() []string {
		t.Helper()
		set, err := c.kube.AppsV1().StatefulSets(elsewhere).Get(t.Context(), "sandlot-apiserver", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return set.Spec.Template.Spec.Containers[0].Args
	}
	before := arguments()

	for name, flag := range map[string]string{"by the server": "--server-side=true", "by Helm, as Helm 3 does": "--server-side=false"} {
		t.Run("upgrade "+name, func(t *testing.T) {
			h.must(t, append([]string{"upgrade", release, h.chart, "--post-renderer", postRenderer, "--reuse-values", "--set", "restricted.enabled=true", "--wait", flag}, at...)...)
			if got := arguments(); !slices.Contains(got, "--claim-pod-metadata=None") {
				t.Errorf("the API server has %q", got)
			}
			if got := caBundle(t, second); got != bundle {
				t.Errorf("the caBundle has become %q", got)
			}
		})
	}
	served("upgraded")

	h.must(t, append([]string{"rollback", release, "1", "--wait"}, at...)...)
	if got := arguments(); !slices.Equal(got, before) {
		t.Errorf("after a rollback the API server has %q, want %q", got, before)
	}
	if got := caBundle(t, second); got != bundle {
		t.Errorf("after a rollback the caBundle is %q", got)
	}
	same, err := c.kube.CoreV1().Secrets(elsewhere).Get(t.Context(), certificates.ServingSecret, metav1.GetOptions{})
	if err != nil || same.ResourceVersion != serving.ResourceVersion {
		t.Errorf("the Secret of the server is another one: %v", err)
	}
	served("rolled-back")

	// What runs goes, and what was stored stays.
	h.must(t, append([]string{"uninstall", release, "--wait"}, at...)...)
	left, errOut, err := second.Kubectl(t.Context(), "", nil, "get", strings.Join(installedKinds, ","), "--all-namespaces",
		"--selector", "app.kubernetes.io/instance="+release+",app.kubernetes.io/managed-by=Helm", "--output=name")
	if err != nil || left != "" {
		t.Errorf("left are %s: %v %s", left, err, errOut)
	}
	claims, err := c.kube.CoreV1().PersistentVolumeClaims(elsewhere).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(claims.Items) != 2 {
		t.Errorf("the volumes of the store and of backups: %v, %v", claims, err)
	}
	if _, err := c.kube.CoreV1().Secrets(elsewhere).Get(t.Context(), certificates.ServingSecret, metav1.GetOptions{}); err != nil {
		t.Errorf("the Secrets of the programs: %v", err)
	}
	if _, err := c.SandboxClaims(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("listing claims: got %v, want that there is no such resource", err)
	}
	if err := installed.Stop(); err != nil {
		t.Error(err)
	}
}

// installedKinds are what the chart has.
var installedKinds = []string{
	"apiservices", "clusterrolebindings", "clusterroles", "configmaps", "cronjobs", "deployments", "flowschemas", "networkpolicies",
	"poddisruptionbudgets", "priorityclasses", "prioritylevelconfigurations", "resourcequotas", "rolebindings", "roles", "secrets", "serviceaccounts",
	"services", "statefulsets", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
}

// caBundle is that of the APIService.
func caBundle(t *testing.T, c *controlplane.ControlPlane) string {
	t.Helper()
	out, _, err := c.Kubectl(t.Context(), "", nil, "get", "apiservice", "v1alpha1.agents.kruise.io", "--output=jsonpath={.spec.caBundle}")
	if err != nil || out == "" {
		t.Fatalf("the caBundle is %q: %v", out, err)
	}
	return out
}
