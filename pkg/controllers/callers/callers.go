// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package callers says which pods may connect to sandboxes whose NetworkPolicy is made by
// a controller and has no rules of a user. It also selects the NetworkPolicies that
// controllers make, because there is one cache of them.
package callers

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	// programLabel is the label by which the pods of an install are known.
	programLabel = "app.kubernetes.io/name"
	// routerLabel and router are the label of the pods of agent-sandbox's router.
	routerLabel = "app"
	router      = "sandbox-router"
)

// programs are those of Sandlot that connect to sandboxes.
var programs = []string{"sandlot-apiserver", "sandlot-gateway"}

// Callers are the pods that may connect to sandboxes. All of them are selected by label and
// by namespace: a label alone could be given to a pod of any namespace.
type Callers struct {
	// Namespace is that of the installation.
	Namespace string
	// RouterNamespace is that of the router of agent-sandbox. Empty is Namespace.
	RouterNamespace string
}

// Ingress returns the rules of a NetworkPolicy that lets in the callers, at all ports.
func (c Callers) Ingress() []networkingv1.NetworkPolicyIngressRule {
	in := func(namespace string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	}
	return []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
		{
			NamespaceSelector: in(c.Namespace),
			PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: programLabel, Operator: metav1.LabelSelectorOpIn, Values: append([]string(nil), programs...),
			}}},
		},
		{
			NamespaceSelector: in(cmp.Or(c.RouterNamespace, c.Namespace)),
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{routerLabel: router}},
		},
	}}}
}

// CachedPolicies selects the NetworkPolicies that controllers need in the cache: those that
// were made for templates and for agent-runtimes.
func CachedPolicies() cache.ByObject {
	made, err := labels.NewRequirement(v1alpha1.LabelCreatedBy, selection.In,
		[]string{v1alpha1.CreatedByTemplate, v1alpha1.CreatedByAgentRuntimes})
	if err != nil {
		panic(err) // constants
	}
	return cache.ByObject{Label: labels.NewSelector().Add(*made)}
}
