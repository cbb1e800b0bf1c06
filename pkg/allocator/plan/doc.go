// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what a claim's next transaction is. It is pure: from a claim,
// what the claim holds, what there is to take, and the time, it works out the next
// true state. It knows no store, clock, context or lock, so that creating a claim,
// a dry run of that, and finishing a claim in the background cannot disagree.
//
// A plan is made in two halves, because what has to be looked for depends on what
// the claim holds:
//
//	a := plan.Assess(state)         // what becomes of what the claim holds, and what it needs
//	...                             // the caller takes sandboxes, or makes some
//	p, err := a.Next(offer, marks)  // the next transaction, and what to wait for after it
package plan
