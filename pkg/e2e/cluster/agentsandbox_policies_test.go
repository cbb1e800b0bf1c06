// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// side is one of the two APIs of the same objects, with a way to write each kind.
type side struct {
	groups, resources []string
	version           string
	pools             schema.GroupVersionResource
	claims            schema.GroupVersionResource
	objects           map[schema.GroupVersionResource]*unstructured.Unstructured
}

func ourSide() side {
	in := func(resource string) schema.GroupVersionResource {
		return v1alpha1.SchemeGroupVersion.WithResource(resource)
	}
	pod := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "busybox:1"}}}}
	return side{
		groups: []string{v1alpha1.GroupName}, version: "v1alpha1", pools: in("sandboxsets"), claims: in("sandboxclaims"),
		resources: []string{"sandboxclaims", "sandboxsets", "sandboxsets/scale", "sandboxtemplates", "sandboxes"},
		objects: map[schema.GroupVersionResource]*unstructured.Unstructured{
			in("sandboxclaims"):    newAgent(in("sandboxclaims"), "SandboxClaim", "new", map[string]any{"templateName": "pool", "replicas": int64(2)}),
			in("sandboxsets"):      newAgent(in("sandboxsets"), "SandboxSet", "new", map[string]any{"replicas": int64(1), "template": pod}),
			in("sandboxtemplates"): newAgent(in("sandboxtemplates"), "SandboxTemplate", "new", map[string]any{"template": pod}),
			in("sandboxes"):        newAgent(in("sandboxes"), "Sandbox", "new", map[string]any{"template": pod}),
		},
	}
}

func theirSide() side {
	template := newAgentTemplate()
	template.SetName("new")
	return side{
		groups: []string{v1alpha1.ExtensionsGroup, v1alpha1.AgentsGroup}, version: "v1beta1", pools: agentPools, claims: agentClaims,
		resources: []string{"sandboxclaims", "sandboxwarmpools", "sandboxwarmpools/scale", "sandboxtemplates", "sandboxes"},
		objects: map[schema.GroupVersionResource]*unstructured.Unstructured{
			agentClaims: newAgentClaim("new"), agentPools: newAgentPool("new", 1), agentTemplates: template,
			agentSandboxes: newAgent(agentSandboxes, "Sandbox", "new", map[string]any{"podTemplate": template.Object["spec"].(map[string]any)["podTemplate"]}),
		},
	}
}

// policy denies, in the words of one side alone, what has a label, and pools of a size.
func (s *side) policy(name, ns, label string, size int) string {
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}
    resourceRules:
    - {apiGroups: [%[3]s], apiVersions: [%[4]s], operations: [CREATE, UPDATE], resources: [%[5]s]}
  validations:
  - expression: "has(request.subResource) && request.subResource == 'scale' || !has(object.metadata.labels) || !('%[6]s' in object.metadata.labels)"
    message: kept out by %[6]s
  - expression: "!has(request.subResource) || request.subResource != 'scale' || object.spec.replicas != %[7]d"
    message: kept out by %[6]s
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`, name, ns, strings.Join(s.groups, ", "), s.version, strings.Join(s.resources, ", "), label, size)
}

// TestAgentSandboxPoliciesBothWays: no policy of one API can be gone around through the
// other, whatever is written, and however.
func TestAgentSandboxPoliciesBothWays(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	ours, theirs := ourSide(), theirSide()
	c.makeAgent(t, agentTemplates, ns, newAgentTemplate())
	c.makeAgent(t, agentPools, ns, newAgentPool("pool", 0))
	policies := ours.policy(ns+"-ours", ns, "ours", 51) + "---" + theirs.policy(ns+"-theirs", ns, "theirs", 52)
	kubectl(t, ns, policies, "apply", "-f", "-")
	t.Cleanup(func() {
		if _, _, err := plane.Kubectl(context.Background(), "", strings.NewReader(policies), "delete", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	dry := []string{metav1.DryRunAll}
	for _, through := range []side{ours, theirs} {
		for label, size := range map[string]int{"ours": 51, "theirs": 52} {
			denied := func(what string, write func(ctx context.Context) error) {
				t.Helper()
				expect.Eventually(t.Context(), t, func(ctx context.Context) error { // a policy takes a moment to be known
					if err := write(ctx); err == nil || !strings.Contains(err.Error(), "kept out by "+label) {
						return fmt.Errorf("%s in %v, which the policy of %s denies: %w", what, through.groups, label, asError(err))
					}
					return nil
				})
			}
			labels := map[string]string{label: "x"}
			for resource, object := range through.objects {
				object := object.DeepCopy()
				object.SetLabels(labels)
				client := c.agent(t, resource, ns)
				denied("creating "+resource.Resource, func(ctx context.Context) error {
					_, err := client.Create(ctx, object, metav1.CreateOptions{DryRun: dry})
					return err
				})
				denied("applying "+resource.Resource, func(ctx context.Context) error {
					_, err := client.Apply(ctx, "new", object, metav1.ApplyOptions{DryRun: dry, FieldManager: "m"})
					return err
				})
			}
			patch := func(body string, sub ...string) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := c.agent(t, through.pools, ns).Patch(ctx, "pool", types.MergePatchType, []byte(body), metav1.PatchOptions{DryRun: dry}, sub...)
					return err
				}
			}
			denied("an update", patch(fmt.Sprintf(`{"metadata":{"labels":{%q:"x"}}}`, label)))
			denied("scaling", patch(fmt.Sprintf(`{"spec":{"replicas":%d}}`, size), "scale"))
		}
	}
}

// TestAgentSandboxWebhooksBothWays: a webhook of one API is asked about writes of the other,
// in its own words, and what it changes loses nothing that it has no words for.
func TestAgentSandboxWebhooksBothWays(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	for name, registered := range map[string]side{"ours": ourSide(), "theirs": theirSide()} {
		t.Run(name, func(t *testing.T) {
			hook := &sideHook{t: t, seen: map[string]string{}}
			c.registerHook(t, ns+"-"+name, ns, registered, hook)
			for _, through := range []side{ourSide(), theirSide()} {
				claim := through.objects[through.claims].DeepCopy()
				claim.SetName(strings.ToLower(name) + "-" + through.version)
				create := func(ctx context.Context, claim *unstructured.Unstructured) (*unstructured.Unstructured, error) {
					return c.agent(t, through.claims, ns).Create(ctx, claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				}
				expect.Eventually(t.Context(), t, func(ctx context.Context) error {
					bad := claim.DeepCopy()
					bad.SetLabels(map[string]string{"bad-" + name: "x"})
					if _, err := create(ctx, bad); err == nil || !strings.Contains(err.Error(), "the webhook says no") {
						return fmt.Errorf("through %v: %w", through.groups, asError(err))
					}
					return nil
				})
				made, err := create(t.Context(), claim)
				if err != nil {
					t.Fatal(err)
				}
				if policy, _, _ := unstructured.NestedString(made.Object, "spec", "lifecycle", "shutdownPolicy"); policy != "Delete" {
					t.Errorf("through %v: what the webhook sets is not there: %v", through.groups, made.Object["spec"])
				}
				if replicas, had := claim.Object["spec"].(map[string]any)["replicas"]; had && made.Object["spec"].(map[string]any)["replicas"] != replicas {
					t.Errorf("through %v: a webhook of %v loses what it cannot say: %v", through.groups, registered.groups, made.Object["spec"])
				}
				if got, want := hook.sawOf(claim.GetName()), registered.claims.GroupVersion().String(); got != want {
					t.Errorf("through %v: the webhook of %s was shown an object of %q", through.groups, want, got)
				}
			}
		})
	}
}

// registerHook lets a webhook change and judge the new claims of one side.
func (c *clients) registerHook(t *testing.T, name, ns string, of side, hook *sideHook) {
	t.Helper()
	hook.name = name[strings.LastIndex(name, "-")+1:]
	server := httptest.NewTLSServer(hook)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	target := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{URL: new(server.URL + path), CABundle: ca}
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{of.claims.Group}, APIVersions: []string{of.version}, Resources: []string{of.claims.Resource},
		},
	}}
	validating := c.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := validating.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "sides.example.com", ClientConfig: target("/validate"), Rules: rules, NamespaceSelector: selector,
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, validating.Delete, name)
	mutating := c.kube.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := mutating.Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "sides.example.com", ClientConfig: target("/mutate"), Rules: rules, NamespaceSelector: selector,
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, mutating.Delete, name)
}

// sideHook gives claims a lifecycle, and denies those with a label.
type sideHook struct {
	t    testing.TB
	name string
	mu   sync.Mutex
	seen map[string]string // the version of a claim, by its name
}

func (h *sideHook) sawOf(claim string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.seen)[claim]
}

func (h *sideHook) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	claim := &unstructured.Unstructured{}
	if err := json.Unmarshal(review.Request.Object.Raw, &claim.Object); err != nil {
		h.t.Error(err)
	}
	h.mu.Lock()
	h.seen[claim.GetName()] = claim.GetAPIVersion()
	h.mu.Unlock()
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if req.URL.Path == "/mutate" {
		review.Response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		review.Response.Patch = []byte(`[{"op": "add", "path": "/spec/lifecycle", "value": {"shutdownPolicy": "Delete"}}]`)
	} else if _, bad := claim.GetLabels()["bad-"+h.name]; bad {
		review.Response.Allowed = false
		review.Response.Result = &metav1.Status{Message: "the webhook says no", Code: http.StatusForbidden}
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		h.t.Error(err)
	}
}
