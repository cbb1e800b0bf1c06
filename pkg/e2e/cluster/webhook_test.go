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
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestWebhooks lets webhooks of the cluster change and judge claims: once each,
// by our server and not by kube-apiserver as well.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 3)
	hooks := &webhooks{t: t, reviewed: map[string][]string{}}
	server := httptest.NewTLSServer(hooks)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	target := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{URL: new(server.URL + path), CABundle: ca}
	}
	match := matchCreate(ns, "sandboxclaims")
	rules := []admissionregistrationv1.RuleWithOperations{match.ResourceRules[0].RuleWithOperations}
	const name = "claims.example.com"

	validating := c.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := validating.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name, ClientConfig: target("/validate"), Rules: rules, NamespaceSelector: match.NamespaceSelector,
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, validating.Delete, ns)
	mutating := c.kube.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := mutating.Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: name, ClientConfig: target("/mutate"), Rules: rules, NamespaceSelector: match.NamespaceSelector,
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, mutating.Delete, ns)
	c.awaitDenied(t, ns, builders.Claim("denied", 1))
	c.eachServer(t, ns, builders.Claim("dry", 1), func(claim *v1alpha1.SandboxClaim, err error) error {
		if err != nil || claim.Spec.Labels["webhook"] != "yes" {
			return fmt.Errorf("the webhook is not heeded: %v, %w", claim, err)
		}
		return nil
	})

	_, err := c.SandboxClaims(ns).Create(t.Context(), builders.Claim("denied", 1), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "the webhook says no") {
		t.Errorf("got %v, want it to be denied", err)
	}
	c.checkBound(t, ns, 0)

	user := uniqueUser(t, "ann")
	grant(t, ns, "sandlot-claimer", user)
	who := as(t, user)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := who.SandboxClaims(ns).List(ctx, metav1.ListOptions{})
		return err
	})
	claim := who.claim(t, ns, builders.Claim("mine", 2))
	if got := claim.Annotations[v1alpha1.AnnotationClaimedBy]; got != user {
		t.Errorf("a webhook made it claimed by %q", got)
	}
	for _, bound := range claim.Status.Sandboxes {
		sandbox, err := c.Sandboxes(ns).Get(t.Context(), bound.Name, metav1.GetOptions{})
		if err != nil || sandbox.Labels["webhook"] != "yes" {
			t.Errorf("sandbox %s has labels %v, %v: not those of the claim that was admitted", bound.Name, sandbox.Labels, err)
		}
	}
	if got := hooks.of("mine"); !slices.Equal(got, []string{"/mutate by " + user, "/validate by " + user}) {
		t.Errorf("the webhooks were asked %q", got)
	}

	// A claim of agent-sandbox is shown to them in the words of their rules. What they add
	// it keeps, though its own API has no word for it.
	if _, err := c.agent(t, agentClaims, ns).Create(t.Context(), newAgentClaim("denied"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the webhook says no") {
		t.Errorf("got %v, want the claim of agent-sandbox to be denied", err)
	}
	theirs := c.agentBound(t, ns, newAgentClaim("theirs"))
	sandbox, err := c.Sandboxes(ns).Get(t.Context(), text(theirs, "status", "sandbox", "name"), metav1.GetOptions{})
	if err != nil || sandbox.Labels["webhook"] != "yes" {
		t.Errorf("the sandbox of a claim of agent-sandbox is %v, %v: not as it was admitted", sandbox, err)
	}
	if got := hooks.of("theirs"); len(got) != 2 {
		t.Errorf("of the claim of agent-sandbox the webhooks were asked %q", got)
	}
}

// webhooks labels the sandboxes of claims, wants to be the one who claims, and
// denies claims that are named so.
type webhooks struct {
	t        testing.TB
	mu       sync.Mutex
	reviewed map[string][]string // by the claim's name
}

func (h *webhooks) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var claim v1alpha1.SandboxClaim
	if err := json.Unmarshal(review.Request.Object.Raw, &claim); err != nil {
		h.t.Errorf("a webhook is asked about something else than a claim: %v", err)
	}
	h.mu.Lock()
	h.reviewed[claim.Name] = append(h.reviewed[claim.Name], req.URL.Path+" by "+review.Request.UserInfo.Username)
	h.mu.Unlock()
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	switch {
	case req.URL.Path == "/mutate":
		review.Response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		review.Response.Patch = []byte(`[
			{"op": "add", "path": "/spec/labels", "value": {"webhook": "yes"}},
			{"op": "add", "path": "/metadata/annotations", "value": {"` + v1alpha1.AnnotationClaimedBy + `": "webhook"}}
		]`)
	case claim.Name == "denied":
		review.Response.Allowed = false
		review.Response.Result = &metav1.Status{Message: "the webhook says no", Code: http.StatusForbidden}
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		h.t.Error(err)
	}
}

func (h *webhooks) of(name string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reviewed[name]
}
