// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storespace keeps etcd from being filled. It counts the bytes that are written for
// each namespace and each user, refuses writes of those who write too much, or most while etcd
// is nearly full, compacts the history early then, and lets an etcd take writes again that was
// full.
package storespace
