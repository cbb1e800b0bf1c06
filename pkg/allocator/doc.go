// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocator binds sandboxes to claims. It is the only place that does.
//
// Create (allocator.go) plans a claim's first state and writes it. A plan is made by a
// turn (turn.go): it finds the pools that may serve the claim (stock.go, setcache.go),
// lets the pure package plan assess the claim, takes what it needs through the package
// queue (candidate.go) or makes sandboxes (fresh.go), and lets plan work out the next
// transaction. commit.go writes that, and finds out what became of it if etcd does not
// answer.
//
// The rest is done in the background. reconciler.go has the queue of the claims that are
// due, and its workers, which call for each claim:
//
//   - the finisher (finish.go), for what one transaction could not finish: as long as the
//     create waits and after that, until the claim's timeout, also after a restart, also on
//     another server. unfinished.go has what is known of such claims.
//   - the rebinder (rebind.go), for claims of agent-sandbox that have lost their sandbox.
//   - the metadataSyncer (metadatasync.go), for claims that are Completed and have been given
//     other labels or annotations since.
//
// feeds.go takes in the watches, which make claims due.
//
// Words: a turn is one plan and its transaction. The hand of a claim has the sandboxes that
// were taken or made for it and are in no transaction yet. A sandbox that a claim holds
// starts until it counts, which is to be ready and in status.claimedReplicas.
//
// docs/design.md follows a claim through these files.
package allocator
