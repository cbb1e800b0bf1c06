// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package callers says which pods may connect to sandboxes whose NetworkPolicy is made by
// a controller and has no rules of a user.
package callers

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// programLabel is the label by which the pods of an install are known.
	programLabel = "app.kubernetes.io/name"
	// routerLabel and router are the label of the pods of agent-sandbox's router.
	routerLabel = "app"
	router      = "sandbox-router"
)

// Program is one of Sandlot's that connects to sandboxes.
type Program string

const (
	// APIServer sets up agent-runtimes and serves sandboxes/proxy.
	APIServer Program = "sandlot-apiserver"
	// Gateway serves the sandboxes of teams of the E2B API.
	Gateway Program = "sandlot-gateway"
)

// Callers are the pods that may connect to sandboxes. All of them are selected by label and
// by namespace: a label alone could be given to a pod of any namespace.
type Callers struct {
	// Namespace is that of the installation.
	Namespace string
	// RouterNamespace is that of the router of agent-sandbox. Empty is Namespace.
	RouterNamespace string
}

// Ingress returns the rules of a NetworkPolicy that lets in programs of the installation and
// the router, at all ports.
func (c Callers) Ingress(programs ...Program) []networkingv1.NetworkPolicyIngressRule {
	names := make([]string, len(programs))
	for i, program := range programs {
		names[i] = string(program)
	}
	in := func(namespace string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	}
	return []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
		{
			NamespaceSelector: in(c.Namespace),
			PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: programLabel, Operator: metav1.LabelSelectorOpIn, Values: names,
			}}},
		},
		{
			NamespaceSelector: in(cmp.Or(c.RouterNamespace, c.Namespace)),
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{routerLabel: router}},
		},
	}}}
}
