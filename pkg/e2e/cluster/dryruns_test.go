// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const (
	// dryRunPolicy is the name of the policy of components/dry-runs, and of its binding.
	dryRunPolicy = "sandlot-apiserver-dry-runs"
	dryRunRole   = "sandlot-apiserver:dry-runs"
)

// TestDryRunsNeedTheirPolicy takes the policy away that holds the API server to dry runs, or
// weakens it, or takes the right away that it bounds: the server stops to ask at once, warns
// of it, and is ready all the same. It asks again when all is there.
func TestDryRunsNeedTheirPolicy(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	installed := s.install(t, controlplane.SandlotOptions{Overlay: "single"})
	metrics, err := installed.Direct(0, s.config)
	if err != nil {
		t.Fatal(err)
	}
	step := func(state string) {
		t.Helper()
		s.awaitDryRuns(t, metrics, state)
	}
	policies, bindings := s.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies(), s.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	const on, unguarded, off = "on", "unguarded", "off"
	step(on)

	binding, err := bindings.Get(t.Context(), dryRunPolicy, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bindings.Delete(t.Context(), dryRunPolicy, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	step(unguarded)
	again := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: dryRunPolicy}, Spec: binding.Spec}
	if _, err := bindings.Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	step(on)

	set := func(failurePolicy string) {
		t.Helper()
		patch := []byte(`{"spec":{"failurePolicy":"` + failurePolicy + `"}}`)
		if _, err := policies.Patch(t.Context(), dryRunPolicy, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	set("Ignore")
	step(unguarded)
	set("Fail")
	step(on)

	// As it is where the component is not installed.
	if err := s.kube.RbacV1().ClusterRoleBindings().Delete(t.Context(), dryRunRole, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := policies.Delete(t.Context(), dryRunPolicy, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	step(off)
}

// awaitDryRuns waits until templates are judged by the cluster, or taken with a warning that
// does not say why, and holds the server to it: no other request for a pod has been made then,
// and none to keep it.
func (s *site) awaitDryRuns(t *testing.T, server *rest.Config, state string) {
	t.Helper()
	tries := 0
	judge := func(ctx context.Context, ns string) error {
		tries++
		var said warned
		config := rest.CopyConfig(s.config)
		config.WarningHandlerWithContext = &said
		template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{GenerateName: "judged-"}}
		// Another one each time, for a verdict is remembered.
		template.Spec.Template = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"spec":%s}`, judgedSpec(tooMuch, fmt.Sprintf(`,"hostname":"h%d"`, tries)))}
		_, err := clientsFor(t, config).SandboxTemplates(ns).Create(ctx, template, metav1.CreateOptions{})
		switch text := strings.Join(said.texts, "; "); {
		case state == "on" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "must be less than or equal to cpu limit of 1")):
			return fmt.Errorf("not judged: %w, warnings %q", err, text)
		case state != "on" && (err != nil || !strings.HasSuffix(text, "the cluster is not asked about its pods")):
			return fmt.Errorf("got %w, warnings %q", err, text)
		}
		return nil
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		if err := judge(ctx, metav1.NamespaceDefault); err != nil {
			return err
		}
		code, text, err := getPage(ctx, server, "/metrics")
		if want := fmt.Sprintf("sandlot_pod_dry_runs{state=%q} 1\n", state); err == nil && (code != http.StatusOK || !strings.Contains(text, want)) {
			err = fmt.Errorf("%d, metrics without %s", code, want)
		}
		return err
	})
	ns := state + "-" + utilrand.String(5) // each state comes more than once
	s.makeNamespace(t, ns)
	if err := judge(t.Context(), ns); err != nil {
		t.Error(err)
	}
	if asked := len(podRequests(t, s.AuditLog(), ns)); (asked > 0) != (state == "on") {
		t.Errorf("%s: the cluster was asked %d times", state, asked)
	}
	for _, event := range podRequests(t, s.AuditLog(), "") {
		if strings.HasSuffix(event.User.Username, ":sandlot-apiserver") && event.Verb == "create" && !strings.Contains(event.RequestURI, "dryRun=") {
			t.Errorf("a pod was to be made: %s", event.RequestURI)
		}
	}
	if code, text, err := getPage(t.Context(), server, "/readyz"); err != nil || code != http.StatusOK {
		t.Errorf("%s: readyz is %d %s %v", state, code, text, err)
	}
}
