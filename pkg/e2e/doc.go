// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the programs as their users run them: as processes, through
// kubectl and over TLS, on real files, stopped and killed. It has no code but
// tests.
package e2e
