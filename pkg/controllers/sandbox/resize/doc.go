// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resize judges changes of the resources that a sandbox has while it runs:
// what is to be asked of the cluster, whether that may be asked, and how far it is.
// It takes values and returns values. A sandbox is to be resized exactly while its
// condition InplaceUpdate is False with the reason InplaceUpdating, which is how the
// transaction of a claim leaves one that has less than the claim asked for.
//
// Only cpu and memory of containers and sidecars that stand in the sandbox's
// template are ever changed, and never to less. What a pod has beside or above that
// (by a LimitRange or a webhook, say) is left alone.
package resize
