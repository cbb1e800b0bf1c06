// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inplace has the rules for giving the containers of a sandbox more cpu
// and memory while its pod runs: what a pod template is raised to, what the pod is
// patched with, how far the resize is, and what the sandbox's conditions say of it.
// It takes values and returns values.
//
// A sandbox is being resized exactly while its condition InplaceUpdate is False with
// the reason InplaceUpdating. The transaction that binds a sandbox begins that
// (Begin), and the controller of the sandbox ends it (Progress, End).
//
// Only cpu and memory of containers and sidecars that are in the sandbox's template
// are ever changed, and never to less. Other containers of a pod, added by a webhook
// say, are left alone.
package inplace
