// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodes watches which nodes of the cluster take pods. The API server hands out
// sandboxes on other nodes last, and the controllers replace them. Without the right to read
// nodes, sandboxes on all nodes are treated the same; no component waits for the right.
package nodes
