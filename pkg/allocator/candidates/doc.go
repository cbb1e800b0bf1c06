// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package candidates finds what a claim can get: the pools that may serve it, the sandboxes of those
// pools as they are bound, and the model of sandboxes that are made for it. It takes nothing and
// writes nothing.
//
// Stock (stock.go) has the sets as a watch shows them (setcache.go), and reads them from the store
// before a claim falls short (sharedreads.go). A Preparer makes what an attempt has taken ready to be
// bound (candidate.go): it resolves the pod template, raises it where the pool is smaller than the
// claim asks for (sizes.go), and leaves out what the controller is about to replace (stale.go).
// Templates.Model is what sandboxes made for a claim look like (model.go), with what the claim adds to
// them (inject.go, podmetadata.go). latelookup.go asks the cluster for PodTemplates without letting
// claims wait.
package candidates
