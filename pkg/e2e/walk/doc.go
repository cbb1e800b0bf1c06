// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package walk has the tests that count the code that a plain claim runs through, and what it
// costs. There is nothing in it but tests and what they need.
package walk
