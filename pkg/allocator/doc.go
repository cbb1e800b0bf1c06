// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocator binds sandboxes to claims. It is the only place that does.
//
// A claim comes to its end in turns, and each turn is the same three steps:
//
//   - It finds (turn.go) what the claim needs: which pools may serve it and what they
//     have (stock.go), their sandboxes ready to be bound (candidate.go), and sandboxes
//     made for it (fresh.go). Sandboxes of pools are taken through the queue (package
//     queue), which keeps claims in the order in which they came.
//   - It plans (package plan): pure functions work out the claim's next true state, and
//     those of the sandboxes that change with it.
//   - It writes the plan in one transaction (commit.go).
//
// Create (allocator.go) does the first turn of a claim, which is enough for most, and a
// dry run plans one and writes nothing. What one transaction could not finish (a pool
// that is empty, sandboxes that must start or be resized first, batches larger than a
// transaction) is done by the worker (worker.go), in turns that begin with news or when
// the passing of time changes something. Create waits for it within the sync window. The
// worker goes on until the claim's timeout, also after a restart, also on another
// server. All that a turn needs to know is stored, or was told by the watches (feeds.go)
// and is kept for each claim that is not at its end (unfinished.go).
package allocator
