// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expect is for tests only: it holds what tests of every kind expect of
// Sandlot, whether a server runs in the process of the test or beside it.
package expect
