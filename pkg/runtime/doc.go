// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runtime calls the agent-runtime inside a sandbox, which is envd or speaks
// like it: POST /init, and the mounting of volumes.
//
// It knows no sandboxes, only where a runtime is said to be. What says so is written by
// the users of a namespace, who trust each other no more than the operator trusts them.
// So a runtime is only ever called at the address of its own pod; no redirect is followed
// and no proxy used; of answers nothing reaches an error but numbers; and the calls of one
// namespace leave room for those of others.
package runtime
