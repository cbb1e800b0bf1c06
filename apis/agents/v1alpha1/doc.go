// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.x-k8s.agents.v1alpha1
// +groupName=agents.x-k8s.io

// Package v1alpha1 holds the kind Sandbox of agents.x-k8s.io/v1alpha1, as releases of
// kubernetes-sigs/agent-sandbox before 1.0 served it. What is as in v1beta1 has its types.
package v1alpha1
