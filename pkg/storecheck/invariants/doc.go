// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package invariants judges what always holds of the objects of a store, as far as one
// state of it shows that. It is the one place where these rules are written down as code:
// the check of a store goes by it, and so do the tests.
//
// A breach is what the programs never write, whatever users do that may write sandboxes and
// claims. What users can bring about, and what a moment later is otherwise by itself, is a
// warning.
package invariants
