// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storespace protects etcd's storage quota: it limits the bytes written per namespace and
// user, compacts early when etcd is nearly full, and recovers an etcd that is out of space.
package storespace
