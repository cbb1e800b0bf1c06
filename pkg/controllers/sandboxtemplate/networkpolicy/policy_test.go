// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/callers"
)

func templateOf(spec v1alpha1.SandboxTemplateSpec) *v1alpha1.SandboxTemplate {
	return &v1alpha1.SandboxTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "python", UID: "u"},
		Spec:       spec,
	}
}

func specOf(t *testing.T, text string) networkingv1.NetworkPolicySpec {
	t.Helper()
	var spec networkingv1.NetworkPolicySpec
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

const (
	selects = `
podSelector: {matchLabels: {agents.kruise.io/sandbox-template: python}}
policyTypes: [Ingress, Egress]
`
	secure = selects + `
ingress:
- from:
  - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: home}}
    podSelector: {matchExpressions: [{key: app.kubernetes.io/name, operator: In, values: [sandlot-apiserver, sandlot-gateway]}]}
  - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: home}}
    podSelector: {matchLabels: {app: sandbox-router}}
egress:
- to:
  - ipBlock:
      cidr: 0.0.0.0/0
      except: [
        10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 169.254.0.0/16, 100.64.0.0/10, 192.0.0.0/24, 198.18.0.0/15, 168.63.129.16/32,
        192.88.99.0/24, 224.0.0.0/4, 240.0.0.0/4]
  - ipBlock: {cidr: "::/0", except: [
      "fc00::/7", "fe80::/10", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "fec0::/10", "ff00::/8"]}
`
)

var keeper = keptBy(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "ns-uid"}})

func TestPolicyOf(t *testing.T) {
	rules := func(text string) *v1alpha1.SandboxNetworkPolicy {
		spec := specOf(t, text)
		return &v1alpha1.SandboxNetworkPolicy{Ingress: spec.Ingress, Egress: spec.Egress}
	}
	const managed, unmanaged = v1alpha1.NetworkPolicyManaged, v1alpha1.NetworkPolicyUnmanaged
	tests := map[string]struct {
		spec v1alpha1.SandboxTemplateSpec
		want string // empty is no policy
	}{
		"nothing said, as by OpenKruise": {},
		"the default":                    {spec: v1alpha1.SandboxTemplateSpec{NetworkPolicyManagement: managed}, want: secure},
		"rules":                          {spec: v1alpha1.SandboxTemplateSpec{NetworkPolicy: rules("ingress: [{}]")}, want: selects + "ingress: [{}]"},
		"rules, managed":                 {spec: v1alpha1.SandboxTemplateSpec{NetworkPolicy: rules("egress: [{}]"), NetworkPolicyManagement: managed}, want: selects + "egress: [{}]"},
		"no rules at all deny all":       {spec: v1alpha1.SandboxTemplateSpec{NetworkPolicy: rules("{}")}, want: selects},
		"unmanaged":                      {spec: v1alpha1.SandboxTemplateSpec{NetworkPolicyManagement: unmanaged}},
		"rules, unmanaged":               {spec: v1alpha1.SandboxTemplateSpec{NetworkPolicy: rules("{}"), NetworkPolicyManagement: unmanaged}},
		"what the server fills in": {
			spec: v1alpha1.SandboxTemplateSpec{NetworkPolicy: rules("{ingress: [{ports: [{port: 80}, {port: 53, protocol: UDP}]}], egress: [{ports: [{}]}]}")},
			want: selects + "{ingress: [{ports: [{port: 80, protocol: TCP}, {port: 53, protocol: UDP}]}], egress: [{ports: [{protocol: TCP}]}]}",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			template := templateOf(test.spec)
			before := template.DeepCopy()
			got := policyOf(template, callers.Callers{Namespace: "home"}, keeper)
			if diff := cmp.Diff(before, template); diff != "" {
				t.Errorf("the template changed (-before +after):\n%s", diff)
			}
			if test.want == "" || got == nil {
				if got != nil || test.want != "" {
					t.Errorf("got %v", got)
				}
				return
			}
			want := specOf(t, test.want[:len(selects)])
			more := specOf(t, test.want[len(selects):])
			want.Ingress, want.Egress = more.Ingress, more.Egress
			if diff := cmp.Diff(want, got.Spec); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			if got.Name != "python-network-policy" || got.Namespace != "ns" || !metav1.IsControlledBy(got, template) || !isLeft(got, "python") {
				t.Errorf("metadata %+v", got.ObjectMeta)
			}
		})
	}
}

// The pods of a set's revision have the label of the template that the set refers to.
// A template that a set merely owns is like any other.
func TestNoPolicyOfARevision(t *testing.T) {
	template := templateOf(v1alpha1.SandboxTemplateSpec{NetworkPolicyManagement: v1alpha1.NetworkPolicyManaged})
	template.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "s", UID: "s", Controller: new(true),
	}}
	template.Labels = map[string]string{v1alpha1.LabelTemplateHash: "h4sh"}
	for name, want := range map[string]bool{"s-h4sh": false, "s-mine": true} {
		template.Name = name
		if got := policyOf(template, callers.Callers{Namespace: "home"}, keeper); (got != nil) != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestCorrect(t *testing.T) {
	want := policyOf(templateOf(v1alpha1.SandboxTemplateSpec{NetworkPolicyManagement: v1alpha1.NetworkPolicyManaged}), callers.Callers{Namespace: "home"}, keeper)
	tests := map[string]struct {
		change func(*networkingv1.NetworkPolicy)
		drift  bool
	}{
		"nothing":              {change: func(*networkingv1.NetworkPolicy) {}},
		"empty lists":          {change: func(p *networkingv1.NetworkPolicy) { p.Spec.Ingress[0].Ports = []networkingv1.NetworkPolicyPort{} }},
		"others' annotations":  {change: func(p *networkingv1.NetworkPolicy) { p.Annotations = map[string]string{"a": "b"} }},
		"others' labels":       {change: func(p *networkingv1.NetworkPolicy) { p.Labels["a"] = "b" }},
		"the template is gone": {change: func(p *networkingv1.NetworkPolicy) { p.OwnerReferences = p.OwnerReferences[1:] }},
		"not kept":             {change: func(p *networkingv1.NetworkPolicy) { p.OwnerReferences = p.OwnerReferences[:1] }, drift: true},
		"no label":             {change: func(p *networkingv1.NetworkPolicy) { p.Labels = nil }, drift: true},
		"another label":        {change: func(p *networkingv1.NetworkPolicy) { p.Labels[v1alpha1.LabelCreatedBy] = "me" }, drift: true},
		"another selector":     {change: func(p *networkingv1.NetworkPolicy) { p.Spec.PodSelector.MatchLabels["a"] = "b" }, drift: true},
		"one type":             {change: func(p *networkingv1.NetworkPolicy) { p.Spec.PolicyTypes = p.Spec.PolicyTypes[:1] }, drift: true},
		"open": {change: func(p *networkingv1.NetworkPolicy) {
			p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{})
		}, drift: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			is := want.DeepCopy()
			test.change(is)
			before := is.DeepCopy()
			got, changed := correct(is, want)
			if changed != test.drift {
				t.Errorf("changed %v", changed)
			}
			if diff := cmp.Diff(before, is); diff != "" {
				t.Errorf("what is there changed (-before +after):\n%s", diff)
			}
			if again, changed := correct(got, want); changed {
				t.Errorf("corrected, and still not right: %v", again)
			}
			if is.Labels["a"] != got.Labels["a"] || is.Annotations["a"] != got.Annotations["a"] {
				t.Errorf("metadata %v", got.ObjectMeta)
			}
		})
	}
}

// What is deleted once no sandbox needs it was made here, and belongs to no other.
func TestIsLeft(t *testing.T) {
	made := policyOf(templateOf(v1alpha1.SandboxTemplateSpec{NetworkPolicyManagement: v1alpha1.NetworkPolicyManaged}), callers.Callers{Namespace: "home"}, keeper)
	tests := map[string]struct {
		change func(*networkingv1.NetworkPolicy)
		want   bool
	}{
		"as it was made":     {func(*networkingv1.NetworkPolicy) {}, true},
		"its template gone":  {func(p *networkingv1.NetworkPolicy) { p.OwnerReferences = p.OwnerReferences[1:] }, true},
		"not kept":           {func(p *networkingv1.NetworkPolicy) { p.OwnerReferences = nil }, false},
		"of another kind":    {func(p *networkingv1.NetworkPolicy) { p.OwnerReferences[0].Kind = "Other" }, false},
		"of another name":    {func(p *networkingv1.NetworkPolicy) { p.OwnerReferences[0].Name = "other" }, false},
		"without its labels": {func(p *networkingv1.NetworkPolicy) { p.Labels = nil }, false},
	}
	for name, test := range tests {
		policy := made.DeepCopy()
		test.change(policy)
		if got := isLeft(policy, "python"); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The policy of a template that is gone is still found to be of that name.
func TestTemplateOfPolicy(t *testing.T) {
	template := templateOf(v1alpha1.SandboxTemplateSpec{NetworkPolicyManagement: v1alpha1.NetworkPolicyManaged})
	for _, name := range []string{"python", strings.Repeat("long.", 49) + "name"} {
		template.Name = name
		policy := policyOf(template, callers.Callers{Namespace: "home"}, keeper)
		if got := templateOfPolicy(t.Context(), policy); len(got) != 1 || got[0].Name != name || got[0].Namespace != "ns" {
			t.Errorf("owned: %v", got)
		}
		policy.OwnerReferences = policy.OwnerReferences[1:]
		if got := templateOfPolicy(t.Context(), policy); len(name) < 200 && (len(got) != 1 || got[0].Name != name) {
			t.Errorf("left: %v", got)
		}
	}
}
