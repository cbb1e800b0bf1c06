// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocator binds sandboxes to claims. It is the only place that does.
//
// A claim walks through it like this: Create (allocator.go) asks the queue
// (queue.go) for candidates, writes the claim and the sandboxes in one
// transaction (commit.go), and returns. What one transaction could not finish
// (a pool that is empty, sandboxes that must start first, batches larger than a
// transaction) is a job (job.go): the call waits for it within the sync window,
// and it goes on in the background until the claim's timeout, also after a
// restart, also on another replica (finisher.go). Sandboxes of pools that are
// smaller than their template are resized by others, which the job begins and waits
// for (resize.go); what a claim adds goes into the sandboxes made for it (inject.go).
// What a bound sandbox and a claim's status look like is decided by pure functions
// (bind.go, status.go).
package allocator
