// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testutil is for tests only: it runs the API server in the process of
// a test. What it starts ends with the test.
package testutil
