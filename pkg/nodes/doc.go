// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodes watches which nodes of the cluster take pods. The API server hands out
// sandboxes on other nodes last, and the controllers replace them. Neither needs the watch or
// waits for it: without the right to read nodes all sandboxes are alike.
package nodes
