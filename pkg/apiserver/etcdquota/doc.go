// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdquota keeps etcd from reaching its storage quota. A Limiter limits the bytes written
// per namespace and user. A Maintainer measures etcd, compacts and defragments it when it is nearly
// full, and recovers it when it is out of space.
package etcdquota
