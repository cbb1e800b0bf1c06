// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package check looks at an install in a cluster, as any client of its API can: what runs,
// and what it needs that is missing. It writes nothing.
//
// A file is a part that is looked at: a function that collects, and one that judges what was
// collected, values in, values out. What the caller may not read is reported, not skipped.
package check
