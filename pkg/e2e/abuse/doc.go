// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package abuse lets users of every kind do their worst to a running server, and
// looks at what that costs: what is stored, what stays in memory, how long the
// processor works, and what another user sees of it. docs/security.md names its
// tests. It has no code but tests, which run one after the other: they measure.
package abuse
