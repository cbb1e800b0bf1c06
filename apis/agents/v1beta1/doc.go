// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.x-k8s.agents.v1beta1
// +groupName=agents.x-k8s.io

// Package v1beta1 holds the kind of agents.x-k8s.io/v1beta1: Sandbox, in the words of
// kubernetes-sigs/agent-sandbox. It is the Sandbox of agents.kruise.io/v1alpha1, which is
// what is stored; the API server converts.
package v1beta1
