// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollector does with sandboxes and templates and their owners what the
// garbage collector of Kubernetes does, where there is none: it deletes what no
// longer has an owner, such as the unused sandboxes of a deleted SandboxSet and
// those of a deleted SandboxClaim with reclaimPolicy Delete. An owner that is
// deleted in the foreground takes them along and goes last; one that is deleted as
// an orphan's parent leaves them behind and goes last, too. Like that one it asks
// the server, and not a cache, before it believes that something is gone.
//
// The work is divided like this. Each object looks at its own owners, and goes or
// lets go of them (collect.go). An owner in the course of such a deletion looks at
// nothing but whether something is left that it owns (finalizers.go). The events
// bring an owner's fate to what it owns, and what has become of that to the owner
// (events.go).
package garbagecollector
