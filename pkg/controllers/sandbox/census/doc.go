// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package census counts sandboxes for agent-sandbox's metric agent_sandboxes: of which
// template they are, whose, and how many are ready. It counts from the watch, so that a
// scrape reads a few numbers, however many sandboxes there are. Only the manager that
// leads shows them, so that sums over managers are right.
package census
