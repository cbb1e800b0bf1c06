// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimepolicy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/callers"
	"github.com/sandlot-io/sandlot/pkg/controllers/ownedobject"
)

var (
	home     = callers.Callers{Namespace: "home"}
	resource = schema.GroupResource{Group: "networking.k8s.io", Resource: "networkpolicies"}
)

// answers answers with what it has, and records the writes that it was asked for.
type answers struct {
	client.Client
	policy *networkingv1.NetworkPolicy
	// pods are the labels of pods.
	pods []labels.Set
	// writing is how writes are answered.
	writing error
	// mutate is what a webhook makes of what is patched.
	mutate func(*networkingv1.NetworkPolicy)
	asked  []string
}

func (a *answers) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if a.policy == nil {
		return apierrors.NewNotFound(resource, key.Name)
	}
	a.policy.DeepCopyInto(object.(*networkingv1.NetworkPolicy))
	return nil
}

func (a *answers) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	for _, pod := range a.pods {
		if o.LabelSelector.Matches(pod) {
			pods := list.(*corev1.PodList)
			pods.Items = append(pods.Items, corev1.Pod{})
		}
	}
	return nil
}

func (a *answers) Create(context.Context, client.Object, ...client.CreateOption) error {
	a.asked = append(a.asked, "create")
	return a.writing
}

func (a *answers) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	a.asked = append(a.asked, "patch")
	if a.mutate != nil {
		a.mutate(object.(*networkingv1.NetworkPolicy))
	}
	return a.writing
}

func (a *answers) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	a.asked = append(a.asked, "delete")
	return nil
}

// lookup has the templates that sandboxes refer to.
type lookup map[string]*v1alpha1.SandboxTemplate

func (l lookup) SandboxTemplate(_ context.Context, _, name string) (*v1alpha1.SandboxTemplate, error) {
	if name == "unknown" {
		return nil, errors.New("no answer")
	}
	return l[name], nil
}

func (l lookup) PodTemplate(context.Context, string, string) (*corev1.PodTemplate, error) {
	return nil, nil
}

func templateOf(name, pod string) *v1alpha1.SandboxTemplate {
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), ResourceVersion: "1"}}
	template.Spec.Template = rawOf(pod)
	return template
}

func changed(change func(*networkingv1.NetworkPolicy)) *networkingv1.NetworkPolicy {
	policy := policyOf("team", home)
	policy.UID, policy.ResourceVersion = "u", "1"
	change(policy)
	return policy
}

func opened(p *networkingv1.NetworkPolicy) { p.Spec.Ingress[0].From = nil }

var (
	ofSandbox = labels.Set{v1alpha1.LabelAgentRuntime: "true", v1alpha1.LabelCreatedBy: "sandbox"}
	ofUser    = labels.Set{v1alpha1.LabelAgentRuntime: "true"}
	plainPod  = labels.Set{v1alpha1.LabelCreatedBy: "sandbox"}
)

func controllerOf(cache, server client.Client, o Options) *Controller {
	o.Client, o.Reader, o.Callers = cache, server, home
	o.Lookup = lookup{"brings": templateOf("brings", withRuntime), "plain": templateOf("plain", without)}
	if o.Clock == nil {
		o.Clock = testingclock.NewFakePassiveClock(time.Now())
	}
	return New(o)
}

func TestReconcile(t *testing.T) {
	asMade := changed(func(*networkingv1.NetworkPolicy) {})
	foreign := changed(func(p *networkingv1.NetworkPolicy) { p.Labels = nil })
	for name, test := range map[string]struct {
		policy    *networkingv1.NetworkPolicy
		sandboxes []*v1alpha1.Sandbox
		pods      []labels.Set
		want      []string
		fails     bool
	}{
		"nothing there":                   {},
		"a sandbox before its pod":        {sandboxes: []*v1alpha1.Sandbox{sandboxOf(withRuntime)}, want: []string{"create"}},
		"one that names its runtime":      {sandboxes: []*v1alpha1.Sandbox{naming(sandboxOf(without))}, want: []string{"create"}},
		"one whose template brings it":    {sandboxes: []*v1alpha1.Sandbox{referringTo("plain"), referringTo("brings")}, want: []string{"create"}},
		"one whose template is not there": {sandboxes: []*v1alpha1.Sandbox{referringTo("missing")}, want: []string{"create"}},
		"one of which nothing is known":   {sandboxes: []*v1alpha1.Sandbox{referringTo("unknown")}, policy: asMade, fails: true},
		"a pod alone":                     {pods: []labels.Set{plainPod, ofSandbox}, want: []string{"create"}},
		"sandboxes without":               {sandboxes: []*v1alpha1.Sandbox{sandboxOf(without), referringTo("plain")}, pods: []labels.Set{plainPod}},
		"paused, with its policy":         {policy: asMade, sandboxes: []*v1alpha1.Sandbox{referringTo("brings")}},
		"an annotation of a user":         {policy: changed(func(p *networkingv1.NetworkPolicy) { p.Annotations = map[string]string{"a": "b"} }), pods: []labels.Set{ofSandbox}},
		"opened by a user":                {policy: changed(opened), pods: []labels.Set{ofSandbox}, want: []string{"patch"}},
		"selects nothing any more":        {policy: changed(func(p *networkingv1.NetworkPolicy) { p.Spec.PodSelector.MatchLabels["a"] = "b" }), pods: []labels.Set{ofSandbox}, want: []string{"patch"}},
		"being deleted":                   {policy: changed(func(p *networkingv1.NetworkPolicy) { opened(p); p.DeletionTimestamp = new(metav1.Now()) }), pods: []labels.Set{ofSandbox}},
		"none left":                       {policy: asMade, sandboxes: []*v1alpha1.Sandbox{referringTo("plain")}, want: []string{"delete"}},
		"a pod of a user is left":         {policy: asMade, pods: []labels.Set{ofUser}, want: []string{"delete"}},
		"foreign, with none":              {policy: foreign},
	} {
		t.Run(name, func(t *testing.T) {
			cache := &answers{policy: test.policy, pods: test.pods}
			c := controllerOf(cache, cache, Options{})
			for i, sandbox := range test.sandboxes {
				sandbox.Name = strings.Repeat("x", i+1)
				c.sandboxes.put(sandbox)
			}
			if _, err := c.Reconcile(t.Context(), requestFor("team")); (err != nil) != test.fails {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, cache.asked); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPodsCostNoRequests: where the policy cannot be made what it should be, pods that come
// and go cost a few requests a minute, and an event in the namespace says why.
func TestPodsCostNoRequests(t *testing.T) {
	for name, test := range map[string]struct {
		cached, stored *networkingv1.NetworkPolicy
		writing        error
		mutate         func(*networkingv1.NetworkPolicy)
		event          string
	}{
		"the name is taken":    {stored: changed(func(p *networkingv1.NetworkPolicy) { p.Labels = nil }), writing: apierrors.NewAlreadyExists(resource, "p"), event: "NetworkPolicyNameTaken"},
		"a create is refused":  {writing: apierrors.NewForbidden(resource, "p", errors.New("quota")), event: "NetworkPolicyFailed"},
		"a patch is refused":   {cached: changed(opened), writing: apierrors.NewForbidden(resource, "p", errors.New("policy")), event: "NetworkPolicyFailed"},
		"a webhook changes it": {cached: changed(opened), mutate: opened, event: "NetworkPolicyChanged"},
	} {
		t.Run(name, func(t *testing.T) {
			cache, server := &answers{policy: test.cached, pods: []labels.Set{ofSandbox}, writing: test.writing, mutate: test.mutate}, &answers{policy: test.stored}
			clock, recorder := testingclock.NewFakePassiveClock(time.Now()), events.NewFakeRecorder(100)
			c := controllerOf(cache, server, Options{Clock: clock, Recorder: recorder})
			for _, want := range []int{6, 1, 1} {
				cache.asked = nil
				for range 60 {
					result, err := c.Reconcile(t.Context(), requestFor("team"))
					if err != nil && !errors.Is(err, test.writing) || err == nil && (result.RequeueAfter <= 0 || result.RequeueAfter > ownedobject.Recheck) {
						t.Fatal(result, err)
					}
					clock.SetTime(clock.Now().Add(time.Second))
				}
				if len(cache.asked) != want {
					t.Errorf("requests %q in a minute, want %d", cache.asked, want)
				}
			}
			if len(recorder.Events) != 8 || !strings.HasPrefix(<-recorder.Events, "Warning "+test.event+" ") {
				t.Errorf("%d events are left", len(recorder.Events))
			}
		})
	}
}

// A namespace that ends is left alone.
func TestNamespaceThatEnds(t *testing.T) {
	ending := apierrors.NewForbidden(resource, v1alpha1.AgentRuntimesPolicy, nil)
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, answer := range map[string]error{"ends": ending, "is gone": apierrors.NewNotFound(resource, "team")} {
		cache, recorder := &answers{pods: []labels.Set{ofSandbox}, writing: answer}, events.NewFakeRecorder(1)
		c := controllerOf(cache, cache, Options{Recorder: recorder})
		if result, err := c.Reconcile(t.Context(), requestFor("team")); err != nil || result.RequeueAfter != 0 || len(recorder.Events) > 0 {
			t.Errorf("a namespace that %s: %+v, %v, %d events", name, result, err, len(recorder.Events))
		}
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

// TestGatewayIsNotLetIn: the gateway connects to sandboxes of teams, whose namespaces have
// another policy that lets it in.
func TestGatewayIsNotLetIn(t *testing.T) {
	if diff := cmp.Diff(home.Ingress(callers.APIServer), policyOf("team", home).Spec.Ingress); diff != "" {
		t.Errorf("ingress (-want +got):\n%s", diff)
	}
}
