// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package walk has the test that counts the code that a plain claim runs through. There is
// nothing in it but tests.
package walk
