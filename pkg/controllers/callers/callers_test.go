// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package callers

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// isLetIn evaluates the rules for a pod of a namespace.
func isLetIn(t *testing.T, rules []networkingv1.NetworkPolicyIngressRule, namespace string, pod labels.Set) bool {
	t.Helper()
	matches := func(selector *metav1.LabelSelector, set labels.Set) bool {
		if selector == nil {
			t.Fatal("a peer without one of its selectors")
		}
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		return parsed.Matches(set)
	}
	for _, rule := range rules {
		for _, peer := range rule.From {
			if matches(peer.NamespaceSelector, labels.Set{"kubernetes.io/metadata.name": namespace}) && matches(peer.PodSelector, pod) {
				return true
			}
		}
	}
	return false
}

func TestIngress(t *testing.T) {
	server, gateway := labels.Set{"app.kubernetes.io/name": "sandlot-apiserver"}, labels.Set{"app.kubernetes.io/name": "sandlot-gateway"}
	router := labels.Set{"app": "sandbox-router"}
	here, there := Callers{Namespace: "home"}, Callers{Namespace: "home", RouterNamespace: "routers"}
	for name, test := range map[string]struct {
		callers   Callers
		namespace string
		pod       labels.Set
		want      bool
	}{
		"an API server":                         {here, "home", server, true},
		"a gateway":                             {here, "home", gateway, true},
		"a router of the install":               {here, "home", router, true},
		"another pod of the install":            {here, "home", labels.Set{"app.kubernetes.io/name": "sandlot-backup"}, false},
		"a pod without labels":                  {here, "home", nil, false},
		"a pod of a user that says so":          {here, "team", server, false},
		"agent-sandbox's namespace, not named":  {here, "agent-sandbox-system", router, false},
		"a router of the namespace for routers": {there, "routers", router, true},
		"another pod there":                     {there, "routers", labels.Set{"app": "web"}, false},
		"a program's label there":               {there, "routers", server, false},
		"a router of the install, moved away":   {there, "home", router, false},
		"a server, where the router is not":     {there, "home", server, true},
	} {
		if got := isLetIn(t, test.callers.Ingress(APIServer, Gateway), test.namespace, test.pod); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for name, pod := range map[string]labels.Set{"server": server, "gateway": gateway, "router": router} {
		if got := isLetIn(t, here.Ingress(APIServer), "home", pod); got != (name != "gateway") {
			t.Errorf("without the gateway, the %s: %v", name, got)
		}
	}
}
