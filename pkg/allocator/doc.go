// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocator binds sandboxes to claims. It is the only place that does.
//
// Create (create.go) plans a claim's first state and writes it; Preview (preview.go) and Check (checks.go)
// show what it would do. Each plan is made by an attempt (attempt.go): it finds the pools that may serve
// the claim, checks what the claim adds to its sandboxes (checks.go), lets the pure package plan assess
// the claim, takes what it needs through the package queue (take.go) or makes sandboxes (make.go), and
// lets plan work out the next transaction. The package candidates finds what there is to take. commit.go
// writes the transaction, and finds out what became of it if etcd does not answer.
//
// The rest is done in the background. The package reconciler has the queue of the claims that are due,
// and its workers, which call for each claim:
//
//   - the finisher (finish.go), for what one transaction could not finish: as long as the create
//     waits and after that, until the claim's timeout, also after a restart, also on another server
//     (ownership.go). unfinished.go has what is known of such a claim, and unfinishedclaims.go has
//     all of them. The package runtimesetup calls the agent-runtimes of their sandboxes.
//   - the Rebinder of the package rebind, for claims of agent-sandbox that have lost their sandbox.
//   - the Syncer of the package metadatasync, for claims that are Completed and have been given other
//     labels or annotations since.
//
// feeds.go takes in the watches, which make claims due. The package throttles delays claims whose writes
// the limits reject, and waitreports.go writes that only report what a claim waits for. The package storage
// says what all of them need of the API's storage, and the package metrics counts.
//
// docs/design.md follows a claim through these files, and docs/development.md explains their words.
package allocator
