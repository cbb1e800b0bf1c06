// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics has the metrics of the allocator. It knows claims and plans, and takes all else as
// values: it reads no store, and traces nothing.
package metrics
