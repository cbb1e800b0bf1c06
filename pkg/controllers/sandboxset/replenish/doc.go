// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replenish keeps the pool of a SandboxSet at its size: it creates sandboxes in
// place of those that claims have taken or that were lost, removes those that are too
// many, dead or of an older revision, and counts what is there. A set that is deleted
// in the foreground stays until its pool is gone.
//
// A reconcile (reconcile.go) is that of a ReplicaSet, with claims that take what it
// keeps. It
//
//  1. waits while claims keep coming, without a pause of a quiet period (claimrate.go);
//  2. finds the revision that the pool should consist of (revision.go), and creates the
//     SandboxTemplate that holds it (holders.go);
//  3. finds for how many sandboxes claims wait (demand.go, waitingclaims.go, burst.go);
//  4. notes which own writes the cache has not shown yet (expectations.go), and only
//     then reads the pool from the cache (indexes.go, burstindex.go): all of this is an
//     observation (observe.go); and counts it (pool.go);
//  5. decides what to create and to remove (plan.go, values in, values out), with the
//     budget of sandboxes that fail to start (startbudget.go), the backoff after sandboxes
//     that failed (backoff.go) and the rules of agent-sandbox (agentsandbox.go, recreate.go);
//  6. does so (write.go, parallel.go), and writes the status if it changed (status.go,
//     conditions.go, startfailure.go, conditionthrottle.go), with events and metrics
//     (events.go, metrics.go).
//
// That sandboxes do not start is judged four times, for four purposes:
//
//	blockedSlots     cannot start, or Pending for too long   uses up the start budget; ScalingLimited
//	startFailure     whyNotAvailable of those creating,      condition Available, with its event
//	                 those failed just now, a refused create
//	notReadyTooLong  not ready for progressDeadline          replaced, in a pool of agent-sandbox
//	outcome          ended, and no newer one is available    backoff; ReplicaFailure SandboxesFail
//
// Sandboxes on nodes that take no pods (nodes.go) are replaced (unavailablenodes.go), as far
// as a roll-out would go.
//
// Four waits are for claims, in this order:
//
//  1. claimRate.eventDelay, before the reconcile: events are gathered for a quiet period, or
//     for up to a second if the pool is large.
//  2. claimRate.countDelay, before the pool is counted: until claims pause for a quiet
//     period, at most a second.
//  3. claimRate.refillDelay, after the count and before anything is created or removed:
//     until claims pause, as long as half of the pool is left, at most 5 seconds after the
//     first claim.
//  4. writer.parallelism, between writes: it is the number of writes at a time, by
//     claimRate.parallelism and a time limit. If it is 0, the reconcile stops and is repeated.
//
// Other waits are the backoff, the start budget and maxNotPickedUp (plan.go), which delay creates, and
// statusDelay (state.go), which delays the status of a large set.
//
// What it remembers of a set from one reconcile to the next is in state.go; the events
// that change that, and begin a reconcile, are in watches.go.
//
// A set may refer to a template. While that cannot be used, because it is missing or
// because what comes of it is not valid, the pool stays at the last revision that
// could, and is refilled from the SandboxTemplate that holds that.
//
// It never decides about a sandbox that a claim has: such a sandbox is no longer
// owned by the set, and a delete that was decided before carries the
// resourceVersion from before, so the server refuses it.
package replenish
