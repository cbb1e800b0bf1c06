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
// What one transaction could not finish goes on in turns of the finisher (finish.go): as
// long as the create waits and after that, until the claim's timeout, also after a
// restart, also on another server. unfinished.go has what is known of such claims, and
// feeds.go takes in the watches that begin their turns.
//
// docs/design.md follows a claim through these files.
package allocator
