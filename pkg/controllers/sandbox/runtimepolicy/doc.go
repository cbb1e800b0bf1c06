// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runtimepolicy keeps a NetworkPolicy in each namespace that has sandboxes with an
// agent-runtime. An agent-runtime takes commands from everyone who connects to it until a
// claim sets its access token, so the policy lets in only the programs that set it and
// forward requests.
//
// The policy selects pods by a label that they have from birth, so neither a refill nor a
// claim writes anything here. It is created with the first sandbox, and deleted when the
// namespace has no such sandbox any more, paused ones included, and no such pod.
//
// The rights that it needs:
//
//	agents.kruise.io         sandboxes         list, watch
//	agents.kruise.io         sandboxtemplates  get, list, watch
//	core                     podtemplates      get, list, watch
//	core                     pods              list, watch
//	networking.k8s.io        networkpolicies   get, list, watch, create, patch, delete
//	events.k8s.io (and core) events            create, patch
package runtimepolicy
