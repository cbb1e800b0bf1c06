// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.kruise.agents.v1alpha1
// +groupName=agents.kruise.io

// Package v1alpha1 holds the kinds of agents.kruise.io/v1alpha1: SandboxClaim,
// SandboxSet, SandboxTemplate and Sandbox. The types are at once what travels
// over the wire, what is stored, and what the server computes with, so a field
// has one meaning everywhere. The JSON is that of OpenKruise Agents, with
// optional fields added. The package derives things from objects (defaults,
// state, texts) but never reads a clock, a client or a file.
package v1alpha1
