// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestSandlotKeepsToItsSeats: the controllers take all the seats of kube-apiserver that they
// can get, by requests that do not end. Kubernetes' own controllers are answered meanwhile,
// and so is our API server, whose requests are parts of theirs.
func TestSandlotKeepsToItsSeats(t *testing.T) {
	t.Parallel()
	const slow, requests = "slow", 100
	s := newSite(t, "--max-requests-inflight=80", "--max-mutating-requests-inflight=40")
	s.install(t, controlplane.SandlotOptions{Overlay: "single", NoControllers: true}) // whom this test stands in for
	s.makeNamespace(t, slow)
	stuck := s.holdPods(t, slow)

	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		close(stuck)
		working.Wait()
	})
	controllers := s.ofAccount(t, controlplane.Namespace, "sandlot-controller-manager")
	for range requests {
		working.Go(func() {
			for ctx.Err() == nil {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "stuck-"}}
				pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox:1"}}
				_, _ = controllers.kube.CoreV1().Pods(slow).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			}
		})
	}
	metric := func(name, level string) float64 {
		return s.sumMetric(t, s.config, "apiserver_flowcontrol_"+name, `priority_level="`+level+`"`)
	}
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if metric("current_inqueue_requests", "sandlot-system") == 0 {
			return fmt.Errorf("no request has to wait; %v are executed", metric("current_executing_requests", "sandlot-system"))
		}
		return nil
	})
	for account, level := range map[[2]string]string{
		{"kube-system", "generic-garbage-collector"}:  "workload-high",
		{controlplane.Namespace, "sandlot-apiserver"}: "sandlot-apiserver",
	} {
		who := s.ofAccount(t, account[0], account[1])
		before := metric("dispatched_requests_total", level)
		for range 20 {
			if _, err := who.kube.CoreV1().Namespaces().Get(t.Context(), slow, metav1.GetOptions{}); err != nil {
				t.Errorf("%s: %v", account[1], err)
			}
		}
		if after := metric("dispatched_requests_total", level); after-before < 20 {
			t.Errorf("%s: %v of 20 requests were of the level %s", account[1], after-before, level)
		}
	}
	if metric("current_inqueue_requests", "sandlot-system") == 0 {
		t.Error("meanwhile no request of the controllers had to wait")
	}
}

// ofAccount returns clients of a service account, in the admin's right.
func (s *site) ofAccount(t *testing.T, namespace, name string) *clients {
	t.Helper()
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + name,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	return clientsFor(t, config)
}

// holdPods makes a webhook that does not answer for pods of a namespace until the channel is
// closed.
func (s *site) holdPods(t *testing.T, ns string) chan struct{} {
	t.Helper()
	release := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case <-release:
		case <-req.Context().Done():
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	_, err := s.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "slow.example.com", AdmissionReviewVersions: []string{"v1"},
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), TimeoutSeconds: new(int32(30)),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: new(server.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return release
}
