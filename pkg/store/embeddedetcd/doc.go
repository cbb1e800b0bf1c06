// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package embeddedetcd runs a one-member etcd inside this process, durable and
// reachable by this user only. It never listens on the network and knows
// nothing of what is stored in it. What is compacted it defragments by itself.
package embeddedetcd
