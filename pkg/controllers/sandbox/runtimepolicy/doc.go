// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runtimepolicy keeps a NetworkPolicy in each namespace that has pods with an agent-runtime.
// An agent-runtime takes commands from everyone who connects to it until a claim sets its
// access token, so the policy lets in only the programs that set it and forward requests.
//
// The policy selects the pods by a label that they have from birth, so neither a refill nor
// a claim writes anything here. It is created, corrected, and deleted when the namespace has
// no such pod any more. A policy of its name without its label belongs to somebody else and
// is left alone; an event on that policy tells of it.
//
// The rights that it needs:
//
//	core                     pods              list, watch
//	networking.k8s.io        networkpolicies   get, list, watch, create, patch, delete
//	events.k8s.io (and core) events            create, patch
package runtimepolicy
