// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollector does with sandboxes and templates and their owners what the
// garbage collector of Kubernetes does, where there is none: it deletes objects whose
// owners are gone, such as the unused sandboxes of a deleted SandboxSet and the sandboxes
// of a deleted SandboxClaim with reclaimPolicy Delete. An owner that is deleted in the
// foreground is deleted after its dependents; one that is deleted with --cascade=orphan
// leaves them behind. Like the garbage collector of Kubernetes it asks the server, and not
// a cache, before it believes that an owner is gone.
//
// The work is divided like this. Each dependent looks at its own owners, and is deleted or
// loses the references to them (collect.go). An owner that waits for its dependents looks
// only at whether there are any left (finalizers.go). The events of an owner queue its
// dependents, and their events the owner (events.go).
package garbagecollector
