// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deploy has no code: it is what an install applies, and its tests hold
// the manifests to what the programs really take and need. docs/install.md says
// how to use them.
package deploy
