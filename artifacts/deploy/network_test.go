// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// endpoint is one end of a connection: a pod, or an address outside.
type endpoint struct {
	namespace string // empty is outside
	labels    labels.Set
	ports     map[string]int32 // by name
	ip        netip.Addr
}

// network evaluates NetworkPolicies by the rules of their API.
type network struct {
	policies   []*networkingv1.NetworkPolicy
	namespaces map[string]labels.Set
}

// allows reports whether a connection is let out at one end and in at the other.
func (n network) allows(t *testing.T, from, to endpoint, protocol corev1.Protocol, port int32) bool {
	t.Helper()
	return n.passes(t, networkingv1.PolicyTypeEgress, from, to, to, protocol, port) &&
		n.passes(t, networkingv1.PolicyTypeIngress, to, from, to, protocol, port)
}

// passes reports whether the policies of one end let the other one be its peer. Ports are
// those of the end that is connected to.
func (n network) passes(t *testing.T, direction networkingv1.PolicyType, of, peer, to endpoint, protocol corev1.Protocol, port int32) bool {
	t.Helper()
	isolated := false
	for _, policy := range n.policies {
		if of.namespace != policy.Namespace || !slices.Contains(policy.Spec.PolicyTypes, direction) || !n.matches(t, &policy.Spec.PodSelector, of.labels) {
			continue
		}
		isolated = true
		if direction == networkingv1.PolicyTypeIngress {
			for _, rule := range policy.Spec.Ingress {
				if n.isAmong(t, rule.From, peer, policy.Namespace) && hasPort(rule.Ports, to, protocol, port) {
					return true
				}
			}
			continue
		}
		for _, rule := range policy.Spec.Egress {
			if n.isAmong(t, rule.To, peer, policy.Namespace) && hasPort(rule.Ports, to, protocol, port) {
				return true
			}
		}
	}
	return !isolated
}

func (n network) matches(t *testing.T, selector *metav1.LabelSelector, set labels.Set) bool {
	t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Matches(set)
}

// isAmong: addresses are those of pods too, which is what most implementations make of an
// ipBlock, and the worst for us.
func (n network) isAmong(t *testing.T, peers []networkingv1.NetworkPolicyPeer, e endpoint, own string) bool {
	t.Helper()
	return len(peers) == 0 || slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		if block := peer.IPBlock; block != nil {
			return netip.MustParsePrefix(block.CIDR).Contains(e.ip) &&
				!slices.ContainsFunc(block.Except, func(cidr string) bool { return netip.MustParsePrefix(cidr).Contains(e.ip) })
		}
		switch {
		case e.namespace == "":
			return false
		case peer.NamespaceSelector == nil && e.namespace != own:
			return false
		case peer.NamespaceSelector != nil && !n.matches(t, peer.NamespaceSelector, n.namespaces[e.namespace]):
			return false
		}
		return peer.PodSelector == nil || n.matches(t, peer.PodSelector, e.labels)
	})
}

func hasPort(ports []networkingv1.NetworkPolicyPort, to endpoint, protocol corev1.Protocol, port int32) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		wanted := corev1.ProtocolTCP
		if p.Protocol != nil {
			wanted = *p.Protocol
		}
		switch {
		case wanted != protocol:
			return false
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			number, ok := to.ports[p.Port.StrVal]
			return ok && number == port
		}
		return p.Port.IntVal == port
	})
}

// newNetwork returns the network of an install, and who is in it.
func newNetwork(objects manifests) (network, map[string]endpoint) {
	who := map[string]endpoint{
		"kube-apiserver": {ip: netip.MustParseAddr("10.0.0.5")},
		"a user":         {ip: netip.MustParseAddr("203.0.113.7")},
		"cloud metadata": {ip: netip.MustParseAddr("169.254.169.254")},
		"DNS":            {namespace: "kube-system", labels: labels.Set{"k8s-app": "kube-dns"}},
		"a webhook":      {namespace: "policies", labels: labels.Set{"app": "webhook"}},
		"a sandbox":      {namespace: "team", labels: labels.Set{"agents.kruise.io/created-by": "sandbox", "sandlot.io/etcd-client": "true"}},
		"another pod":    {namespace: "team", labels: labels.Set{"app": "web"}},
		"a pretender":    {namespace: "team", labels: labels.Set{"app": "sandbox-router", "app.kubernetes.io/name": "sandlot-gateway"}},
		"a router":       {namespace: namespace, labels: labels.Set{"app": "sandbox-router"}},
		"Prometheus":     {namespace: "monitoring", labels: labels.Set{"app": "prometheus"}},
		"a backup":       {namespace: namespace, labels: labels.Set(etcdClient)},
		"sandlot-backup": {namespace: namespace, labels: labels.Set{"app.kubernetes.io/name": "sandlot-backup"}},
	}
	for name, w := range workloads(objects) {
		e := endpoint{namespace: namespace, labels: w.template.Labels, ports: map[string]int32{}}
		for _, port := range w.template.Spec.Containers[0].Ports {
			e.ports[port.Name] = port.ContainerPort
		}
		who[name] = e
	}
	for name, e := range who {
		if !e.ip.IsValid() {
			e.ip = netip.MustParseAddr("10.244.0.9") // of the pod network
			who[name] = e
		}
	}
	return network{
		policies: of[*networkingv1.NetworkPolicy](objects),
		namespaces: map[string]labels.Set{
			"monitoring": {"metrics": "enabled"},
			"team":       {corev1.LabelMetadataName: "team"},
			namespace:    {corev1.LabelMetadataName: namespace},
		},
	}, who
}

// flow is a connection that may be or not. The port is of TCP, but 53, which is of UDP too.
type flow struct {
	from, to string
	port     int32
	allowed  bool
}

func checkFlows(t *testing.T, objects manifests, flows []flow) {
	t.Helper()
	n, who := newNetwork(objects)
	for _, f := range flows {
		for _, name := range []string{f.from, f.to} {
			if _, ok := who[name]; !ok {
				t.Fatalf("there is no %s", name)
			}
		}
		protocols := []corev1.Protocol{corev1.ProtocolTCP}
		if f.port == 53 {
			protocols = append(protocols, corev1.ProtocolUDP)
		}
		for _, protocol := range protocols {
			if got := n.allows(t, who[f.from], who[f.to], protocol, f.port); got != f.allowed {
				t.Errorf("%s to %s at %s %d: allowed is %v", f.from, f.to, protocol, f.port, got)
			}
		}
	}
}

const (
	apiServer = "sandlot-apiserver"
	managers  = "sandlot-controller-manager"
	etcdName  = "sandlot-etcd"
)

// TestFlows: NetworkPolicies let through what is needed, and nothing else that they can name.
func TestFlows(t *testing.T) {
	flows := []flow{
		{"kube-apiserver", apiServer, 6443, true}, {"Prometheus", apiServer, 6443, true},
		{apiServer, "DNS", 53, true}, {apiServer, "kube-apiserver", 6443, true}, {apiServer, "kube-apiserver", 443, true},
		{apiServer, "a webhook", 9443, true}, {apiServer, "a webhook", 8443, true},
		{apiServer, "a sandbox", 49983, true}, {apiServer, "a sandbox", 8080, true},
		{apiServer, etcdName, 2379, true}, {apiServer, etcdName, 2380, false}, {apiServer, etcdName, 2381, false},
		{apiServer, "cloud metadata", 80, false}, {apiServer, "another pod", 5432, false}, {apiServer, "a user", 22, false},
		{apiServer, managers, 8080, false}, {apiServer, gatewayName, 8443, true}, // at a port that kube-apiserver may have

		{managers, "DNS", 53, true}, {managers, "kube-apiserver", 6443, true}, {managers, "kube-apiserver", 443, true},
		{managers, "a sandbox", 49983, false}, {managers, etcdName, 2379, false}, {managers, "cloud metadata", 80, false},
		{"Prometheus", managers, 8080, true}, {"Prometheus", managers, 8081, false}, {"kube-apiserver", managers, 8080, false},

		{"a user", gatewayName, 8443, true}, {"a user", gatewayName, 8080, false}, {"Prometheus", gatewayName, 8080, true},
		{gatewayName, "a sandbox", 8080, true}, {gatewayName, "kube-apiserver", 443, true}, {gatewayName, "DNS", 53, true},
		{gatewayName, etcdName, 2379, false}, {gatewayName, "another pod", 8080, false}, {gatewayName, "cloud metadata", 80, false},

		{etcdName, etcdName, 2379, true}, {etcdName, etcdName, 2380, true}, {etcdName, "DNS", 53, true},
		{etcdName, "kube-apiserver", 443, false}, {"a backup", etcdName, 2379, true}, {"a backup", etcdName, 2380, false},
		{"Prometheus", etcdName, 2381, false}, {"a backup", "kube-apiserver", 443, false},
	}
	for _, stranger := range []string{"a sandbox", "another pod"} {
		for _, port := range []int32{2379, 2380, 2381} {
			flows = append(flows, flow{stranger, etcdName, port, false})
		}
		flows = append(flows, flow{stranger, managers, 8080, false}, flow{stranger, managers, 8081, false},
			flow{stranger, gatewayName, 8080, false}, flow{stranger, gatewayName, 8081, false})
	}
	checkFlows(t, renderWith(t, "default", e2b), flows)
	checkFlows(t, render(t, "single"), []flow{
		{"kube-apiserver", apiServer, 6443, true}, {apiServer, "kube-apiserver", 443, true}, {apiServer, "a user", 2379, false},
	})
	checkFlows(t, render(t, "external-etcd"), []flow{{apiServer, "a user", 2379, true}, {managers, "a user", 2379, false}})
}

// TestChartFlowsToOtherPorts: values add those of kube-apiserver, webhooks and traces to what
// the programs may reach, and an etcd of the user's is reached where it is.
func TestChartFlowsToOtherPorts(t *testing.T) {
	objects := renderChart(t, namespace, "gateway: {enabled: true}\nnetworkPolicy: {extraEgressPorts: [10250, 16443]}\n")
	var flows []flow
	for _, program := range []string{apiServer, managers, gatewayName} {
		flows = append(flows, flow{program, "kube-apiserver", 16443, true}, flow{program, "a webhook", 10250, true}, flow{program, "a webhook", 10251, false})
	}
	checkFlows(t, objects, append(flows, flow{etcdName, "kube-apiserver", 16443, false}))
	external := func(endpoints string) manifests {
		return renderChart(t, namespace, "etcd: {mode: external, external: {endpoints: ["+endpoints+"]}}\n")
	}
	checkFlows(t, external(`https://a.example.com:12379, https://b.example.com:12379/, "https://[2001:db8::1]:22379"`), []flow{
		{apiServer, "a user", 12379, true}, {apiServer, "a user", 22379, true}, {apiServer, "a user", 2379, false},
		{managers, "a user", 12379, false},
	})
	checkFlows(t, external("https://etcd.example.com"), []flow{{apiServer, "a user", 443, true}, {apiServer, "a user", 2379, false}})
}

// TestDNS: who may ask for names may do so at both ports that the pods of DNS have behind
// their Service, 53, and 5353 on OpenShift.
func TestDNS(t *testing.T) {
	each(t, checkDNS)
	t.Run("chart", func(t *testing.T) {
		t.Parallel()
		for _, mode := range modes {
			checkDNS(t, renderAll(t, mode, "networkPolicy: {egressCIDRs: [192.0.2.0/28]}\n"))
		}
	})
}

func checkDNS(t *testing.T, objects manifests) {
	t.Helper()
	n := 0
	for _, policy := range of[*networkingv1.NetworkPolicy](objects) {
		for _, rule := range policy.Spec.Egress {
			for _, protocol := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP} {
				if len(rule.Ports) == 0 || !hasPort(rule.Ports, endpoint{}, protocol, 53) {
					continue
				}
				if n++; !hasPort(rule.Ports, endpoint{}, protocol, 5353) || len(rule.To) > 0 {
					t.Errorf("NetworkPolicy %s does not let out to %s 5353 as it does to 53, anywhere", policy.Name, protocol)
				}
			}
		}
	}
	if n < 4 {
		t.Errorf("%d rules are for DNS", n)
	}
}

// knownNetwork is what connects where kube-apiserver has known addresses: other pods do not
// reach the API server but through it.
var knownNetwork = []flow{
	{"kube-apiserver", apiServer, 6443, true}, {"Prometheus", apiServer, 6443, true}, {"sandlot-backup", apiServer, 6443, true},
	{"a sandbox", apiServer, 6443, false}, {"another pod", apiServer, 6443, false}, {"a user", apiServer, 6443, false},
	{apiServer, etcdName, 2379, true},
}

// TestFlowsWithAKnownNetwork is what docs/install.md says for such a cluster.
func TestFlowsWithAKnownNetwork(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```yaml known-network\n")
	block, _, found := strings.Cut(block, "```\n")
	if !found {
		t.Fatal("docs/install.md has no block known-network")
	}
	objects := renderUser(t, map[string]string{"top": "resources: [%s/default]\n" + block})
	checkFlows(t, objects, knownNetwork)
}

// TestChartFlowsWithAKnownNetwork is the same by a value of the chart.
func TestChartFlowsWithAKnownNetwork(t *testing.T) {
	checkFlows(t, renderChart(t, namespace, "networkPolicy: {ingressCIDRs: [10.0.0.0/24]}\n"), knownNetwork)
}
