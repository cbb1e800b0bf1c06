// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package poolindex has, in memory, the sandboxes of each pool that can be claimed
// now. Each is taken by one caller only. The package does no I/O: the store decides, and
// an index that lags costs a retry, never a wrong binding.
package poolindex
