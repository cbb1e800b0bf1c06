// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package claims has the rules about claims that the API server and the
// controllers must agree on: what a claim asks for, which SandboxSets may serve
// it, and when a sandbox can be claimed. It is pure: values in, values out.
package claims
