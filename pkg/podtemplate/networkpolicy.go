// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// HasNetworkPolicy reports whether a template has a NetworkPolicy of its own, which
// selects pods by the template's name. OpenKruise's templates have none of the
// fields, and mean none. Those that hold revisions never have one: their pods are
// labelled with the template that the set refers to.
func HasNetworkPolicy(template *v1alpha1.SandboxTemplate) bool {
	if IsRevision(template) {
		return false
	}
	switch template.Spec.NetworkPolicyManagement {
	case v1alpha1.NetworkPolicyManaged:
		return true
	case "":
		return template.Spec.NetworkPolicy != nil
	default:
		return false
	}
}

// publicNameServers are for sandboxes that cannot reach those of the cluster.
var publicNameServers = []any{"8.8.8.8", "1.1.1.1"}

// withoutDefaultDNS is a pod template of the cluster without what kube-apiserver
// filled in: it has the policy ClusterFirst whenever none was given. Where name
// servers are set too, the policy was chosen.
func withoutDefaultDNS(template *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	spec := &template.Spec
	if spec.DNSPolicy != corev1.DNSClusterFirst || spec.DNSConfig != nil && len(spec.DNSConfig.Nameservers) > 0 {
		return template
	}
	without := *template
	without.Spec.DNSPolicy = ""
	return &without
}

// withPublicDNS makes the pods of a template ask public name servers, unless the
// template says whom they ask. Name servers that it names beside an unset dnsPolicy
// stay; those of the cluster, which would have come first, do not. What is no pod
// template stays as it is, for those who judge it.
func withPublicDNS(template *runtime.RawExtension) (*runtime.RawExtension, error) {
	object, err := decode(template)
	if err != nil {
		return template, nil //nolint:nilerr // see above
	}
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return template, nil
	}
	if policy, _ := spec["dnsPolicy"].(string); policy != "" {
		return template, nil
	}
	config, ok := spec["dnsConfig"].(map[string]any)
	if !ok {
		config = map[string]any{}
	}
	if servers, _ := config["nameservers"].([]any); len(servers) == 0 {
		config["nameservers"] = publicNameServers
	}
	spec["dnsPolicy"], spec["dnsConfig"] = string(corev1.DNSNone), config
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	return &runtime.RawExtension{Raw: raw}, nil
}
