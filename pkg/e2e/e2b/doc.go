// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2b is for tests only: the E2B SDKs of npm, unchanged, and older versions'
// requests as they stand on the wire, against "sandlot up --e2b-address". What the SDKs do
// is in pkg/testutil/e2bsdk. In the simulated sandboxes runs sandlot-runtime where a story runs
// commands, and otherwise a double of envd that only takes its token.
package e2b
