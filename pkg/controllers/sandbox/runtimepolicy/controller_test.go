// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimepolicy

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/callers"
)

var (
	home     = callers.Callers{Namespace: "home"}
	resource = schema.GroupResource{Group: "networking.k8s.io", Resource: "networkpolicies"}
)

// answers answers with what it has, and records the writes that it was asked for.
type answers struct {
	client.Client
	policy *networkingv1.NetworkPolicy
	pods   int
	// creating is how creates are answered.
	creating error
	asked    []string
}

func (a *answers) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if a.policy == nil {
		return apierrors.NewNotFound(resource, key.Name)
	}
	a.policy.DeepCopyInto(object.(*networkingv1.NetworkPolicy))
	return nil
}

func (a *answers) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.PodList).Items = make([]corev1.Pod, a.pods)
	return nil
}

func (a *answers) Create(context.Context, client.Object, ...client.CreateOption) error {
	a.asked = append(a.asked, "create")
	return a.creating
}

func (a *answers) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	a.asked = append(a.asked, "patch")
	return nil
}

func (a *answers) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	a.asked = append(a.asked, "delete")
	return nil
}

func changed(change func(*networkingv1.NetworkPolicy)) *networkingv1.NetworkPolicy {
	policy := policyOf("team", home)
	policy.UID, policy.ResourceVersion = "u", "1"
	change(policy)
	return policy
}

func TestReconcile(t *testing.T) {
	asMade := changed(func(*networkingv1.NetworkPolicy) {})
	foreign := changed(func(p *networkingv1.NetworkPolicy) { p.Labels = nil })
	for name, test := range map[string]struct {
		cached, stored *networkingv1.NetworkPolicy
		cachedPods     int
		storedPods     int
		want           []string
	}{
		"nothing there":                 {},
		"pods without a policy":         {cachedPods: 1, storedPods: 1, want: []string{"create"}},
		"pods with their policy":        {cached: asMade, stored: asMade, cachedPods: 1, storedPods: 1},
		"an annotation of a user":       {cached: changed(func(p *networkingv1.NetworkPolicy) { p.Annotations = map[string]string{"a": "b"} }), cachedPods: 1},
		"opened by a user":              {cached: changed(func(p *networkingv1.NetworkPolicy) { p.Spec.Ingress[0].From = nil }), cachedPods: 1, want: []string{"patch"}},
		"selects nothing any more":      {cached: changed(func(p *networkingv1.NetworkPolicy) { p.Spec.PodSelector.MatchLabels["a"] = "b" }), cachedPods: 1, want: []string{"patch"}},
		"no pods left":                  {cached: asMade, stored: asMade, want: []string{"delete"}},
		"a pod that the cache has not":  {cached: asMade, stored: asMade, storedPods: 1},
		"somebody else's, without pods": {cached: foreign, stored: foreign},
	} {
		t.Run(name, func(t *testing.T) {
			cache, server := &answers{policy: test.cached, pods: test.cachedPods}, &answers{policy: test.stored, pods: test.storedPods}
			c := New(Options{Client: cache, Reader: server, Clock: testingclock.NewFakePassiveClock(time.Now()), Callers: home})
			if _, err := c.Reconcile(t.Context(), requestFor("team")); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, cache.asked); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// A policy of somebody else gets one event, and pods that come and go cost no requests
// until it is looked at again.
func TestForeignPolicyCostsNoRequests(t *testing.T) {
	foreign := changed(func(p *networkingv1.NetworkPolicy) { p.Labels = nil })
	cache, server := &answers{pods: 1, creating: apierrors.NewAlreadyExists(resource, foreign.Name)}, &answers{policy: foreign, pods: 1}
	clock, recorder := testingclock.NewFakePassiveClock(time.Now()), events.NewFakeRecorder(10)
	c := New(Options{Client: cache, Reader: server, Clock: clock, Callers: home, Recorder: recorder})
	reconcile := func(wantRequests, wantEvents int) {
		t.Helper()
		result, err := c.Reconcile(t.Context(), requestFor("team"))
		if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > recheck {
			t.Errorf("%+v, %v", result, err)
		}
		if len(cache.asked) != wantRequests || len(recorder.Events) != wantEvents {
			t.Errorf("%d requests and %d events, want %d and %d", len(cache.asked), len(recorder.Events), wantRequests, wantEvents)
		}
	}
	reconcile(1, 1)
	for range 10 {
		reconcile(1, 1)
	}
	clock.SetTime(clock.Now().Add(recheck))
	reconcile(2, 1)
	foreign.UID = "another"
	clock.SetTime(clock.Now().Add(recheck))
	reconcile(3, 2)
	// It is gone.
	cache.creating = nil
	clock.SetTime(clock.Now().Add(recheck))
	if result, err := c.Reconcile(t.Context(), requestFor("team")); err != nil || result.RequeueAfter != 0 || len(cache.asked) != 4 {
		t.Errorf("%+v, %v, %v", result, err, cache.asked)
	}
}

// A namespace in which the policy is refused is tried again after a while, not for each pod.
func TestRefusedPolicy(t *testing.T) {
	cache := &answers{pods: 1, creating: apierrors.NewForbidden(resource, v1alpha1.AgentRuntimesPolicy, nil)}
	clock := testingclock.NewFakePassiveClock(time.Now())
	c := New(Options{Client: cache, Reader: &answers{}, Clock: clock, Callers: home})
	if _, err := c.Reconcile(t.Context(), requestFor("team")); !apierrors.IsForbidden(err) {
		t.Errorf("the first try: %v", err)
	}
	if result, err := c.Reconcile(t.Context(), requestFor("team")); err != nil || result.RequeueAfter != recheck || len(cache.asked) != 1 {
		t.Errorf("a pod later: %+v, %v, %v", result, err, cache.asked)
	}
	clock.SetTime(clock.Now().Add(recheck))
	cache.creating = nil
	if _, err := c.Reconcile(t.Context(), requestFor("team")); err != nil || len(cache.asked) != 2 {
		t.Errorf("a minute later: %v, %v", err, cache.asked)
	}
	// A namespace that ends is left alone.
	ending := apierrors.NewForbidden(resource, v1alpha1.AgentRuntimesPolicy, nil)
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	cache.creating = ending
	if result, err := c.Reconcile(t.Context(), requestFor("ending")); err != nil || result.RequeueAfter != 0 {
		t.Errorf("a namespace that ends: %+v, %v", result, err)
	}
}

func TestNamespaceOfPolicy(t *testing.T) {
	policy := changed(func(*networkingv1.NetworkPolicy) {})
	if got := namespaceOfPolicy(t.Context(), policy); !slices.Equal(got, append(got[:0:0], requestFor("team"))) {
		t.Errorf("ours: %v", got)
	}
	policy.Name = "python-network-policy"
	if got := namespaceOfPolicy(t.Context(), policy); len(got) > 0 {
		t.Errorf("that of a template: %v", got)
	}
	if got := requestFor("team").NamespacedName; got != (types.NamespacedName{Namespace: "team", Name: "sandlot-agent-runtimes"}) {
		t.Errorf("the request is %v", got)
	}
}
