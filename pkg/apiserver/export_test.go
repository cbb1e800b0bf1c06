// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import clientv3 "go.etcd.io/etcd/client/v3"

// WrapKV puts wrap between the allocator and etcd.
func (c *ExtraConfig) WrapKV(wrap func(clientv3.KV) clientv3.KV) { c.wrapKV = wrap }
