// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inplace has the rules for changing the containers of a sandbox while its pod
// is there: another image, and more or less cpu and memory. What a pod template becomes,
// what the pod is patched with, how far that is, and what the sandbox's conditions say of
// it. It takes values and returns values.
//
// A sandbox is being changed exactly while its condition InplaceUpdate is False with
// the reason InplaceUpdating. The transaction that binds a sandbox puts what is wanted
// into its template and begins that (Begin), and the controller of the sandbox ends it
// (ProgressOf).
//
// There are two reasons to change one:
//
//   - It has less than the template that the claim asks for (Raise). Only cpu and memory
//     of containers and sidecars that are in the sandbox's template are ever changed
//     then, and never to less.
//   - The claim says so itself (Apply): image and cpu of the first container, the latter
//     to exactly what it says.
//
// Other containers of a pod, added by a webhook say, are left alone.
package inplace
