// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifetime pauses sandboxes at their spec.pauseTime and deletes them at their
// spec.shutdownTime. Both controllers are a Timer.
package lifetime
