// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.x-k8s.agents.extensions.v1beta1
// +groupName=extensions.agents.x-k8s.io

// Package v1beta1 holds the kinds of extensions.agents.x-k8s.io/v1beta1: SandboxClaim,
// SandboxTemplate and SandboxWarmPool, in the words of kubernetes-sigs/agent-sandbox. They
// are the SandboxClaim, SandboxTemplate and SandboxSet of agents.kruise.io/v1alpha1, which
// are what is stored; the API server converts.
package v1beta1
