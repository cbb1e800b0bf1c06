// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replenish keeps the pool of a SandboxSet at its size: it makes the
// sandboxes that claims have taken or that were lost, removes those that are too
// many, dead or made from an older template, and counts what is there. A set that
// is deleted in the foreground stays until its pool is gone (foreground.go).
//
// A reconcile walks: hold back while claims run (burst.go) · find the revision that
// the pool should consist of (goal.go, resolved.go) and make the SandboxTemplate that
// holds it (materialize.go) · note which own writes the cache has not shown yet
// (expectations.go) · read the pool from the cache · decide (plan.go, pure) · pause if sandboxes only end (failures.go) ·
// delete and create (act.go, slowstart.go) · delete what holds
// revisions that nobody uses (materialize.go) · write the status, if it changed (status.go).
//
// A set may refer to a template. While that cannot be used, because it is missing or
// because what comes of it is not valid, the pool stays at the last revision that
// could, and is refilled from what holds it.
//
// It never decides about a sandbox that a claim has: such a sandbox is no longer
// owned by the set, and a delete that was decided before carries the
// resourceVersion from before, so the server refuses it.
package replenish
