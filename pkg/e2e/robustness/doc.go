// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package robustness runs clients against several API servers on one etcd while processes
// are killed and stopped and connections fail, and decides whether what the clients saw was
// possible. docs/reliability.md describes what it checks. It has no code but tests.
package robustness
