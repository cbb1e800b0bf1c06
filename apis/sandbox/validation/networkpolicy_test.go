// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestValidateNetworkPolicy(t *testing.T) {
	tests := map[string]struct {
		policy     string
		management v1alpha1.NetworkPolicyManagement
		want       []string
	}{
		"none":               {},
		"managed":            {management: "Managed"},
		"unmanaged":          {management: "Unmanaged"},
		"managed by others":  {management: "Other", want: []string{`spec.networkPolicyManagement: Unsupported value: "Other"`}},
		"denies all":         {policy: `{}`},
		"all from anywhere":  {policy: `{"ingress":[{}]}`},
		"unmanaged and said": {policy: `{}`, management: "Unmanaged"},
		"everything": {policy: `{"ingress":[{"from":[{"podSelector":{"matchLabels":{"a":"b"}},"namespaceSelector":{}},{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}],
			"ports":[{"port":80},{"port":"http","protocol":"UDP"},{"protocol":"SCTP"},{"port":1000,"endPort":2000}]}],
			"egress":[{"to":[{"ipBlock":{"cidr":"::/0","except":["fc00::/7"]}}]}]}`},
		"no peer":          {policy: `{"ingress":[{"from":[{}]}]}`, want: []string{"spec.networkPolicy.ingress[0].from[0]: Required value: must specify a peer"}},
		"block and pods":   {policy: `{"egress":[{"to":[{"podSelector":{},"ipBlock":{"cidr":"10.0.0.0/8"}}]}]}`, want: []string{"spec.networkPolicy.egress[0].to[0]: Forbidden: may not specify both ipBlock and another peer"}},
		"no cidr":          {policy: `{"egress":[{"to":[{"ipBlock":{}}]}]}`, want: []string{"spec.networkPolicy.egress[0].to[0].ipBlock.cidr: Required value"}},
		"an address":       {policy: `{"egress":[{"to":[{"ipBlock":{"cidr":"10.0.0.1"}}]}]}`, want: []string{`spec.networkPolicy.egress[0].to[0].ipBlock.cidr: Invalid value: "10.0.0.1"`}},
		"except elsewhere": {policy: `{"egress":[{"to":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["11.0.0.0/16"]}}]}]}`, want: []string{`spec.networkPolicy.egress[0].to[0].ipBlock.except[0]: Invalid value: "11.0.0.0/16": must be a strict subset of cidr`}},
		"except the same":  {policy: `{"egress":[{"to":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.0.0.0/8"]}}]}]}`, want: []string{`spec.networkPolicy.egress[0].to[0].ipBlock.except[0]: Invalid value: "10.0.0.0/8": must be a strict subset of cidr`}},
		"except nonsense":  {policy: `{"egress":[{"to":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["x"]}}]}]}`, want: []string{`spec.networkPolicy.egress[0].to[0].ipBlock.except[0]: Invalid value: "x"`}},
		"selector": {policy: `{"ingress":[{"from":[{"podSelector":{"matchLabels":{"a":"-"}}},{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}]}]}`, want: []string{
			`spec.networkPolicy.ingress[0].from[0].podSelector.matchLabels: Invalid value: "-"`,
			"spec.networkPolicy.ingress[0].from[1].namespaceSelector.matchExpressions[0].values: Required value",
		}},
		"ports": {policy: `{"ingress":[{"ports":[{"port":0},{"port":65536},{"port":"Not A Name"},{"protocol":"ICMP"},{"endPort":5},{"port":"http","endPort":5},{"port":10,"endPort":5},{"port":10,"endPort":70000}]}]}`, want: []string{
			"spec.networkPolicy.ingress[0].ports[0].port: Invalid value: 0: ",
			"spec.networkPolicy.ingress[0].ports[1].port: Invalid value: 65536: ",
			`spec.networkPolicy.ingress[0].ports[2].port: Invalid value: "Not A Name": `,
			`spec.networkPolicy.ingress[0].ports[3].protocol: Unsupported value: "ICMP"`,
			"spec.networkPolicy.ingress[0].ports[4].port: Required value: must be specified when endPort is specified",
			"spec.networkPolicy.ingress[0].ports[5].endPort: Invalid value: 5: may not be specified when port is a name",
			"spec.networkPolicy.ingress[0].ports[6].endPort: Invalid value: 5: must be greater than or equal to port",
			"spec.networkPolicy.ingress[0].ports[7].endPort: Invalid value: 70000: ",
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := template(t, func(s *v1alpha1.SandboxTemplate) {
				s.Spec.NetworkPolicyManagement = tc.management
				if tc.policy == "" {
					return
				}
				s.Spec.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{}
				if err := utiljson.Unmarshal([]byte(tc.policy), s.Spec.NetworkPolicy); err != nil {
					t.Fatal(err)
				}
			})
			expect(t, ValidateSandboxTemplate(changed), tc.want)
			expect(t, ValidateSandboxTemplateUpdate(changed, template(t, nil)), tc.want)
			if errs := ValidateSandboxTemplateUpdate(changed, changed.DeepCopy()); len(errs) > 0 {
				t.Errorf("unchanged, and %v", errs)
			}
			warns := tc.management == v1alpha1.NetworkPolicyUnmanaged && tc.policy != ""
			if got := NetworkPolicyWarnings(&changed.Spec); (len(got) == 1) != warns {
				t.Errorf("warns %q", got)
			}
		})
	}
	many := template(t, func(s *v1alpha1.SandboxTemplate) { s.Spec.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{} })
	many.Spec.NetworkPolicy.Ingress = append(many.Spec.NetworkPolicy.Ingress, make([]networkingv1.NetworkPolicyIngressRule, 257)...)
	expect(t, ValidateSandboxTemplate(many), []string{"spec.networkPolicy.ingress: Too many: 257: must have at most 256 items"})
}

// A warning about a change to the default policy says what it takes from sandboxes that run.
func TestNetworkPolicyUpdateWarnings(t *testing.T) {
	const managed, unmanaged = v1alpha1.NetworkPolicyManaged, v1alpha1.NetworkPolicyUnmanaged
	rules := &v1alpha1.SandboxNetworkPolicy{}
	type spec = v1alpha1.SandboxTemplateSpec
	for name, test := range map[string]struct {
		old, now spec
		warns    bool
	}{
		"from nothing":                {now: spec{NetworkPolicyManagement: managed}, warns: true},
		"from unmanaged":              {old: spec{NetworkPolicyManagement: unmanaged}, now: spec{NetworkPolicyManagement: managed}, warns: true},
		"from rules":                  {old: spec{NetworkPolicy: rules}, now: spec{NetworkPolicyManagement: managed}, warns: true},
		"from rules that are dropped": {old: spec{NetworkPolicyManagement: managed, NetworkPolicy: rules}, now: spec{NetworkPolicyManagement: managed}, warns: true},
		"as before":                   {old: spec{NetworkPolicyManagement: managed}, now: spec{NetworkPolicyManagement: managed}},
		"to rules":                    {now: spec{NetworkPolicyManagement: managed, NetworkPolicy: rules}},
		"to none":                     {old: spec{NetworkPolicyManagement: managed}},
	} {
		got := NetworkPolicyUpdateWarnings(&test.now, &test.old)
		if (len(got) == 1) != test.warns || test.warns && !strings.HasPrefix(got[0], "spec.networkPolicyManagement: ") {
			t.Errorf("%s: warns %q", name, got)
		}
	}
}
