// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package program is for tests only: it builds the programs of this repository, runs
// them as processes, and reads what they write.
package program
