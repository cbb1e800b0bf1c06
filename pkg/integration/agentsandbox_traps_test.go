// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// The traps that programs written for agent-sandbox lay for who serves its API, each with a
// test that has its number. Those that take pods (6 to 8) are tried in a cluster.

// firstEvent is the first event of a watch of claims.
func firstEvent(t *testing.T, s *testutil.Server, options metav1.ListOptions) watch.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	defer cancel()
	watched, err := agent(t, s, agentClaims).Watch(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	event, ok := <-watched.ResultChan()
	if !ok {
		t.Fatalf("a watch with %+v ended without an event", options)
	}
	return event
}

// TestTrap01WatchFromTheCreate: a client that watches one claim from the resourceVersion
// of its create gets it, though nothing changes after that.
func TestTrap01WatchFromTheCreate(t *testing.T) {
	s := agentPool(t, 2)
	createAgent(t, s, newAgentClaim("other", nil))
	made := createAgent(t, s, newAgentClaim("claim", nil))
	event := firstEvent(t, s, metav1.ListOptions{
		FieldSelector: metav1.ObjectNameField + "=claim", ResourceVersion: made.GetResourceVersion(),
	})
	claim, ok := event.Object.(*unstructured.Unstructured)
	if !ok || claim.GetUID() != made.GetUID() || sandboxOf(claim) == "" || agentReady(t, claim).Status != metav1.ConditionTrue {
		t.Errorf("the first event is %s of %v", event.Type, event.Object)
	}
}

// TestTrap02WatchFromNowhere: a watch without a resourceVersion, or with 0, begins with
// what there is.
func TestTrap02WatchFromNowhere(t *testing.T) {
	s := agentPool(t, 1)
	made := createAgent(t, s, newAgentClaim("claim", nil))
	for _, version := range []string{"", "0"} {
		event := firstEvent(t, s, metav1.ListOptions{FieldSelector: metav1.ObjectNameField + "=claim", ResourceVersion: version})
		claim, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type != watch.Added || claim.GetUID() != made.GetUID() {
			t.Errorf("from %q the first event is %s of %v", version, event.Type, event.Object)
		}
	}
}

// TestTrap03Names: a sandbox that was made for a claim is named like it, one of a pool
// like that with a suffix.
func TestTrap03Names(t *testing.T) {
	s := agentPool(t, 1, withSyncWindow(time.Millisecond))
	if name := sandboxOf(createAgent(t, s, newAgentClaim("warm", nil))); !strings.HasPrefix(name, "pool-") {
		t.Errorf("a claim of the pool has sandbox %q", name)
	}
	if name := sandboxOf(createAgent(t, s, newAgentClaim("cold", nil))); name != "cold" {
		t.Errorf("a claim of the empty pool has sandbox %q", name)
	}
	getAgent(t, s, agentSandboxes, "cold")
}

// badClaims are taken all the same, with the reason that clients read.
var badClaims = map[string]struct {
	spec   map[string]any
	reason string
}{
	"no pool":            {map[string]any{"warmPoolRef": map[string]any{"name": "absent"}}, "WarmPoolNotFound"},
	"no template":        {map[string]any{"sandboxTemplateRef": map[string]any{"name": "absent"}}, "TemplateNotFound"},
	"label domain":       {map[string]any{"additionalPodMetadata": map[string]any{"labels": map[string]any{"team": "a"}}}, "InvalidMetadata"},
	"annotation domain":  {map[string]any{"additionalPodMetadata": map[string]any{"annotations": map[string]any{"x.k8s.io/y": "z"}}}, "InvalidMetadata"},
	"env not allowed":    {map[string]any{"env": []any{map[string]any{"name": "A", "value": "hush-hush"}}}, "EnvVarsInjectionRejected"},
	"volume not allowed": {map[string]any{"volumeClaimTemplates": []any{map[string]any{"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"accessModes": []any{"ReadWriteOnce"}}}}}, "VolumeClaimTemplatesError"},
}

// TestTrap04BadRequestsAreTaken: clients read reasons of conditions, not HTTP errors.
// Those are for who asks for them by a header.
func TestTrap04BadRequestsAreTaken(t *testing.T) {
	s := agentPool(t, 1, withSyncWindow(time.Hour)) // what is wrong is answered at once
	strict := rest.CopyConfig(s.Config)
	strict.Wrap(func(next http.RoundTripper) http.RoundTripper { return strictly{next} })
	for name, tc := range badClaims {
		t.Run(name, func(t *testing.T) {
			name := strings.ReplaceAll(name, " ", "-")
			ready := agentReady(t, createAgent(t, s, newAgentClaim(name, tc.spec)))
			if ready.Status != metav1.ConditionFalse || ready.Reason != tc.reason {
				t.Errorf("Ready is %+v, want %s", ready, tc.reason)
			}
			if strings.Contains(ready.Message, "hush-hush") {
				t.Errorf("a secret is in %q", ready.Message)
			}
			_, err := agentOf(t, strict, agentClaims).Create(t.Context(), newAgentClaim(name+"-strict", tc.spec), metav1.CreateOptions{})
			var status apierrors.APIStatus
			if !errors.As(err, &status) || status.Status().Code < 400 || status.Status().Code >= 500 {
				t.Errorf("strictly it is %v", err)
			}
		})
	}
	if name := sandboxOf(createAgent(t, s, newAgentClaim("good", nil))); !strings.HasPrefix(name, "pool-") {
		t.Errorf("bad requests have taken what there was: %q", name)
	}
}

// strictly asks for errors instead of conditions.
type strictly struct{ next http.RoundTripper }

func (s strictly) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Sandlot-Strict", "true")
	return s.next.RoundTrip(request)
}

// TestTrap05NamesAreThereBeforeReady: the claim names its sandbox, and the sandbox its
// pod, at the very revision at which the claim is Ready.
func TestTrap05NamesAreThereBeforeReady(t *testing.T) {
	s := agentPool(t, 1)
	claim := createAgent(t, s, newAgentClaim("claim", nil))
	name := sandboxOf(claim)
	if got := claim.GetAnnotations()[v1alpha1.AgentAnnotationSandboxName]; got != name || name == "" {
		t.Errorf("the claim of sandbox %q names %q", name, got)
	}
	if ready := agentReady(t, claim); ready.Status != metav1.ConditionTrue || ready.Reason != "DependenciesReady" || ready.ObservedGeneration != claim.GetGeneration() {
		t.Errorf("Ready is %+v, of generation %d", ready, claim.GetGeneration())
	}
	sandbox, err := agent(t, s, agentSandboxes).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := sandbox.GetAnnotations()[v1alpha1.AgentAnnotationPodName]; got != name {
		t.Errorf("the sandbox %s names the pod %q", name, got)
	}
	labels := sandbox.GetLabels()
	if labels[v1alpha1.AgentLabelClaimUID] != string(claim.GetUID()) || labels[v1alpha1.AgentLabelLaunchType] != v1alpha1.AgentLaunchWarm {
		t.Errorf("the sandbox has the labels %v", labels)
	}
	if sandbox.GetResourceVersion() != claim.GetResourceVersion() {
		t.Errorf("the sandbox is of revision %s, the claim of %s", sandbox.GetResourceVersion(), claim.GetResourceVersion())
	}
}

// TestTrap06PoolLabelLeaves: the label by which the router leaves pods of pools alone is
// off the sandbox in the transaction that binds it. TestAgentSandboxRouter sees the pod's.
func TestTrap06PoolLabelLeaves(t *testing.T) {
	s := agentPool(t, 1)
	name := sandboxOf(createAgent(t, s, newAgentClaim("claim", nil)))
	if value, pooled := getAgent(t, s, agentSandboxes, name).GetLabels()[v1alpha1.AgentLabelPool]; pooled {
		t.Errorf("the claimed sandbox has the label of pool %q", value)
	}
}

// TestTrap09TimesAreStable: lastTransitionTime is the clock of a TTL, and stays where a
// status is written again, by whichever dialect.
func TestTrap09TimesAreStable(t *testing.T) {
	s := agentPool(t, 1)
	claim := createAgent(t, s, newAgentClaim("claim", nil))
	want := agentReady(t, claim).LastTransitionTime
	time.Sleep(1100 * time.Millisecond) // times are of whole seconds
	patch := []byte(`{"spec": {"lifecycle": {"ttlSecondsAfterFinished": 3600}}, "metadata": {"labels": {"a": "b"}}}`)
	if _, err := agent(t, s, agentClaims).Patch(t.Context(), "claim", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := claims(s).Patch(t.Context(), "claim", types.MergePatchType, []byte(`{"metadata": {"labels": {"c": "d"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	ready := agentReady(t, getAgent(t, s, agentClaims, "claim"))
	if ready.Status != metav1.ConditionTrue || !ready.LastTransitionTime.Equal(&want) {
		t.Errorf("Ready is %+v, and was since %s", ready, want)
	}
}

// TestTrap10OwnersAreKnown: a sandbox is controlled by its claim, in the words of this API
// and by nothing else, in whichever group it is read.
func TestTrap10OwnersAreKnown(t *testing.T) {
	s := agentPool(t, 1)
	claim := createAgent(t, s, newAgentClaim("claim", nil))
	theirs := getAgent(t, s, agentSandboxes, sandboxOf(claim)).GetOwnerReferences()
	ours, err := sandboxes(s).Get(t.Context(), sandboxOf(claim), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, owners := range [][]metav1.OwnerReference{theirs, ours.OwnerReferences} {
		if len(owners) != 1 || owners[0].APIVersion != agentClaims.GroupVersion().String() || owners[0].Kind != "SandboxClaim" ||
			owners[0].UID != claim.GetUID() || owners[0].Controller == nil || !*owners[0].Controller {
			t.Errorf("the owners are %+v", owners)
		}
	}
}

// TestTrap11Metrics: autoscalers and performance gates ask by the names of agent-sandbox.
func TestTrap11Metrics(t *testing.T) {
	s := agentPool(t, 1)
	claim := newAgentClaim("claim", nil)
	claim.SetLabels(map[string]string{v1alpha1.AgentLabelCreatedBy: "python-client"})
	createAgent(t, s, claim)
	want := map[string][]string{
		"agent_sandbox_claim_creation_total": {
			`namespace="default"`, `sandbox_template="base"`, `launch_type="warm"`, `warmpool_name="pool"`, `pod_condition="ready"`, `created_by="python-client"`,
		},
		"agent_sandbox_claim_controller_startup_latency_ms_count": {`launch_type="warm"`, `sandbox_template="base"`},
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		text, err := s.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		for name, labels := range want {
			if !slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool {
				return strings.HasPrefix(line, name+"{") && !slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(line, label) })
			}) {
				return fmt.Errorf("there is no %s with %q", name, labels)
			}
		}
		return nil
	})
}

// TestTrap12DefaultsOfALifecycle: shutdownPolicy has a default where there is a lifecycle,
// and makes none.
func TestTrap12DefaultsOfALifecycle(t *testing.T) {
	s := agentPool(t, 2)
	without := createAgent(t, s, newAgentClaim("without", nil))
	if lifecycle, found, _ := unstructured.NestedMap(without.Object, "spec", "lifecycle"); found {
		t.Errorf("a claim without a lifecycle has %v", lifecycle)
	}
	with := createAgent(t, s, newAgentClaim("with", map[string]any{"lifecycle": map[string]any{"ttlSecondsAfterFinished": int64(60)}}))
	lifecycle, _, _ := unstructured.NestedMap(with.Object, "spec", "lifecycle")
	if len(lifecycle) != 2 || lifecycle["shutdownPolicy"] != "Retain" || lifecycle["ttlSecondsAfterFinished"] != int64(60) {
		t.Errorf("the lifecycle is %v", lifecycle)
	}
}

// TestTrap13OlderFields are taken, resolved into the pool that has served them, and may be
// lost by clients that do not know them.
func TestTrap13OlderFields(t *testing.T) {
	older := map[string]any{"name": "base"}
	for name, warmpool := range map[string]any{"any": "default", "unset": nil, "named": "pool"} {
		t.Run(name, func(t *testing.T) {
			s := agentPool(t, 1)
			spec := map[string]any{"sandboxTemplateRef": older}
			if warmpool != nil {
				spec["warmpool"] = warmpool
			}
			claim := createAgent(t, s, newAgentClaim("claim", spec))
			if pool, _, _ := unstructured.NestedString(claim.Object, "spec", "warmPoolRef", "name"); pool != "pool" {
				t.Errorf("the claim is of pool %q: %v", pool, claim.Object["spec"])
			}
			unstructured.RemoveNestedField(claim.Object, "spec", "sandboxTemplateRef")
			unstructured.RemoveNestedField(claim.Object, "spec", "warmpool")
			claim.SetLabels(map[string]string{"by": "typed-client"})
			updated, err := agent(t, s, agentClaims).Update(t.Context(), claim, metav1.UpdateOptions{})
			if err != nil {
				t.Fatalf("an update without the older fields: %v", err)
			}
			if sandboxOf(updated) != sandboxOf(claim) || agentReady(t, updated).Status != metav1.ConditionTrue {
				t.Errorf("after it the status is %v", updated.Object["status"])
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		s := agentPool(t, 1, withSyncWindow(time.Millisecond))
		claim := createAgent(t, s, newAgentClaim("claim", map[string]any{"sandboxTemplateRef": older, "warmpool": "none"}))
		if name := sandboxOf(claim); name != "claim" {
			t.Errorf("a claim of no pool has sandbox %q", name)
		}
	})
	t.Run("neither", func(t *testing.T) {
		s := agentPool(t, 1)
		claim := newAgentClaim("claim", nil)
		claim.Object["spec"] = map[string]any{}
		_, err := agent(t, s, agentClaims).Create(t.Context(), claim, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) {
			t.Errorf("a claim of nothing: %v", err)
		}
	})
}

// TestTrap14ConditionsAreSorted by type, on claims and sandboxes.
func TestTrap14ConditionsAreSorted(t *testing.T) {
	s := agentPool(t, 1)
	claim := createAgent(t, s, newAgentClaim("claim", nil))
	for _, object := range []*unstructured.Unstructured{claim, getAgent(t, s, agentSandboxes, sandboxOf(claim))} {
		conditions := agentConditions(t, object)
		if len(conditions) == 0 || !slices.IsSortedFunc(conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) }) {
			t.Errorf("%s has the conditions %+v", object.GetKind(), conditions)
		}
	}
}

// TestTrap15DefinitionsAreNotFound: an APIService serves what CustomResourceDefinitions
// did. The docs tell who looks for those by name.
func TestTrap15DefinitionsAreNotFound(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(repository, "docs", "agent-sandbox.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range []string{
		"sandboxes.agents.x-k8s.io", "sandboxclaims.extensions.agents.x-k8s.io",
		"sandboxtemplates.extensions.agents.x-k8s.io", "sandboxwarmpools.extensions.agents.x-k8s.io",
	} {
		if !strings.Contains(string(content), definition) {
			t.Errorf("docs/agent-sandbox.md does not name %s", definition)
		}
	}
}
