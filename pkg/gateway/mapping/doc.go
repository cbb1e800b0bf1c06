// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mapping puts the E2B API into the words of sandboxes and claims, and back: bodies
// of requests into a claim or a patch of a Sandbox, Sandboxes into answers. It is pure: it
// takes values and returns values.
package mapping
