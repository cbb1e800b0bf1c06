// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manager runs the background work: it turns options into a
// controller-runtime manager with all controllers. It is a client of the API and
// knows no server. Several managers can run in one process.
package manager
