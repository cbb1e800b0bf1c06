// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdtap is for tests only: it stands between a server in a process of its own
// and its etcd, and lets a test decide at which transaction that server comes to a halt,
// so that it can be killed there.
package etcdtap
