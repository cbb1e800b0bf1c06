// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package integration tests the API server in process, on a real etcd: what the
// parts promise together. It has no code of its own.
package integration
