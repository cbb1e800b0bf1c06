// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodes follows the nodes of the cluster: which of them take pods. Both the API
// server, which prefers sandboxes on such nodes, and the controllers, which replace those
// on others, do so. Neither waits for it, nor needs it: without the right to read nodes all
// sandboxes are alike.
package nodes
