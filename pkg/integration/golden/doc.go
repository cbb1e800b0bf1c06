// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package golden tests that this version reads what each release has stored. The stores of
// the releases are in testdata, with what their API answered; see the README there. It has
// no code of its own.
package golden
