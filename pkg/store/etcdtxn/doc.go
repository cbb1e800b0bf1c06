// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdtxn writes several API objects in one etcd transaction, byte for
// byte what the generic store of k8s.io/apiserver would have written for each
// of them, so that the generic store, its watch cache and encryption at rest
// read them as their own. It knows nothing of sandboxes or claims.
package etcdtxn
