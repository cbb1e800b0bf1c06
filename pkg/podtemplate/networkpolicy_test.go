// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

func TestPublicDNS(t *testing.T) {
	const public = `"dnsPolicy":"None","dnsConfig":{"nameservers":["8.8.8.8","1.1.1.1"]}`
	of := func(spec string) string { return `{"spec":{"containers":[{"name":"c","image":"i"}]` + spec + `}}` }
	tests := map[string]struct {
		inline, patch string
		change        func(*v1alpha1.SandboxTemplateSpec)
		want          string
	}{
		"by default":       {inline: of(""), change: managed, want: of("," + public)},
		"its own policy":   {inline: of(`,"dnsPolicy":"Default"`), change: managed, want: of(`,"dnsPolicy":"Default"`)},
		"its own servers":  {inline: of(`,"dnsConfig":{"nameservers":["9.9.9.9"],"searches":["x"]}`), change: managed, want: of(`,"dnsPolicy":"None","dnsConfig":{"nameservers":["9.9.9.9"],"searches":["x"]}`)},
		"its own searches": {inline: of(`,"dnsConfig":{"searches":["x"]}`), change: managed, want: of(`,"dnsPolicy":"None","dnsConfig":{"nameservers":["8.8.8.8","1.1.1.1"],"searches":["x"]}`)},
		"the patch says otherwise": {
			inline: of(""), patch: `{"spec":{"dnsPolicy":"Default"}}`, change: managed, want: of(`,"dnsPolicy":"Default"`),
		},
		"the patch says ClusterFirst": {
			inline: of(""), patch: `{"spec":{"dnsPolicy":"ClusterFirst"}}`, change: managed, want: of(`,"dnsPolicy":"ClusterFirst"`),
		},
		"the patch has servers": {
			inline: of(""), patch: `{"spec":{"dnsConfig":{"nameservers":["9.9.9.9"]}}}`, change: managed,
			want: of(`,"dnsPolicy":"None","dnsConfig":{"nameservers":["9.9.9.9"]}`),
		},
		"the patch takes the policy away": {
			inline: of(`,"dnsPolicy":"Default"`), patch: `{"spec":{"dnsPolicy":null}}`, change: managed, want: of("," + public),
		},
		"another patch": {
			inline: of(""), patch: `{"spec":{"hostname":"h"}}`, change: managed, want: of(`,"hostname":"h",` + public),
		},
		"a policy of its own rules": {inline: of(""), want: of(""), change: func(s *v1alpha1.SandboxTemplateSpec) {
			managed(s)
			s.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{}
		}},
		"unmanaged": {inline: of(""), want: of(""), change: func(s *v1alpha1.SandboxTemplateSpec) {
			s.NetworkPolicyManagement = v1alpha1.NetworkPolicyUnmanaged
		}},
		"nothing said": {inline: of(""), want: of(""), change: func(*v1alpha1.SandboxTemplateSpec) {}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w, cache := newWorld(), podtemplate.NewCache()
			w.templates["inline"].Spec.Template = rawOf(test.inline)
			test.change(&w.templates["a"].Spec)
			set := setOf("", func(s *v1alpha1.SandboxSet) {
				s.Spec.TemplateRef = to("a")
				if test.patch != "" {
					s.Spec.Patch = rawOf(test.patch)
				}
			})
			for range 2 { // the second from the cache
				got, err := cache.ResolveSet(t.Context(), set, w)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(decoded(t, test.want), decoded(t, string(got.Template.Raw))); diff != "" {
					t.Errorf("set (-want +got):\n%s", diff)
				}
			}
			if string(w.templates["inline"].Spec.Template.Raw) != test.inline {
				t.Error("the template itself has changed")
			}
			if test.patch != "" {
				return
			}
			got, err := podtemplate.ResolveTemplate(t.Context(), w.templates["a"], w)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decoded(t, test.want), decoded(t, string(got.Template.Raw))); diff != "" {
				t.Errorf("template (-want +got):\n%s", diff)
			}
			// One that only leads there asks whom it did before.
			got, err = cache.ResolveSet(t.Context(), setOf("", func(s *v1alpha1.SandboxSet) { s.Spec.TemplateRef = to("b") }), w)
			if err != nil || string(got.Template.Raw) != test.inline {
				t.Errorf("past the first template: %v, %v", got, err)
			}
		})
	}
}

// kube-apiserver fills in the dnsPolicy of a PodTemplate, which must not count as the
// user's word.
func TestPublicDNSOfPodTemplate(t *testing.T) {
	const public = "None [8.8.8.8 1.1.1.1]"
	config := func(servers ...string) *corev1.PodDNSConfig { return &corev1.PodDNSConfig{Nameservers: servers} }
	tests := map[string]struct {
		policy corev1.DNSPolicy
		config *corev1.PodDNSConfig
		patch  string
		want   string
	}{
		"not defaulted":                  {want: public},
		"defaulted":                      {policy: corev1.DNSClusterFirst, want: public},
		"defaulted, with searches":       {policy: corev1.DNSClusterFirst, config: &corev1.PodDNSConfig{Searches: []string{"x"}}, want: public},
		"with name servers":              {policy: corev1.DNSClusterFirst, config: config("9.9.9.9"), want: "ClusterFirst [9.9.9.9]"},
		"another policy":                 {policy: corev1.DNSDefault, want: "Default []"},
		"its own":                        {policy: corev1.DNSNone, config: config("9.9.9.9"), want: "None [9.9.9.9]"},
		"defaulted, the patch insists":   {policy: corev1.DNSClusterFirst, patch: `{"spec":{"dnsPolicy":"ClusterFirst"}}`, want: "ClusterFirst []"},
		"defaulted, the patch has one":   {policy: corev1.DNSClusterFirst, patch: `{"spec":{"dnsConfig":{"nameservers":["9.9.9.9"]}}}`, want: "None [9.9.9.9]"},
		"defaulted, the patch is silent": {policy: corev1.DNSClusterFirst, patch: `{"spec":{"hostname":"h"}}`, want: public},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w, cache := newWorld(), podtemplate.NewCache()
			managed(&w.templates["pods"].Spec)
			w.pods["core"].Template.Spec.DNSPolicy, w.pods["core"].Template.Spec.DNSConfig = test.policy, test.config
			before := w.pods["core"].DeepCopy()
			for _, first := range []string{"pods", "PodTemplate core"} {
				set := setOf("", func(s *v1alpha1.SandboxSet) {
					s.Spec.TemplateRef = to(first)
					if test.patch != "" {
						s.Spec.Patch = rawOf(test.patch)
					}
				})
				got, err := cache.ResolveSet(t.Context(), set, w)
				if err != nil {
					t.Fatal(err)
				}
				pods, err := v1alpha1.PodTemplate(got.Template)
				if err != nil {
					t.Fatal(err)
				}
				var servers []string
				if pods.Spec.DNSConfig != nil {
					servers = pods.Spec.DNSConfig.Nameservers
				}
				asks := fmt.Sprint(pods.Spec.DNSPolicy, " ", servers)
				if first == "pods" && asks != test.want {
					t.Errorf("%q, want %q", asks, test.want)
				}
				if first != "pods" && strings.Contains(asks, "8.8.8.8") {
					t.Errorf("past the secure template: %s", asks)
				}
			}
			if diff := cmp.Diff(before, w.pods["core"]); diff != "" {
				t.Errorf("the PodTemplate itself changed (-before +after):\n%s", diff)
			}
		})
	}
}

func managed(s *v1alpha1.SandboxTemplateSpec) {
	s.NetworkPolicyManagement = v1alpha1.NetworkPolicyManaged
}

// What is said of services is taken from the template that is named first.
func TestResolvedService(t *testing.T) {
	w := newWorld()
	w.templates["a"].Spec.Service = new(true)
	w.templates["inline"].Spec.Service = new(false)
	service := func(name string) string {
		t.Helper()
		got, err := podtemplate.ResolveSet(t.Context(), setOf("", func(s *v1alpha1.SandboxSet) { s.Spec.TemplateRef = to(name) }), w)
		if err != nil {
			t.Fatal(err)
		}
		var direct *podtemplate.Resolved
		if template := w.templates[name]; template != nil {
			if direct, err = podtemplate.ResolveTemplate(t.Context(), template, w); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got.Service, direct.Service); diff != "" {
				t.Errorf("%s: set and template differ:\n%s", name, diff)
			}
		}
		switch {
		case got.Service == nil:
			return ""
		case *got.Service:
			return "true"
		default:
			return "false"
		}
	}
	for name, want := range map[string]string{"a": "true", "b": "", "inline": "false", "PodTemplate core": ""} {
		if got := service(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got, err := podtemplate.ResolveSet(t.Context(), setOf(strings.TrimSpace(plain)), w); err != nil || got.Service != nil {
		t.Errorf("inline: %v, %v", got, err)
	}
}
