// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func checkInvariants(ctx context.Context, kv clientv3.KV, encryptionConfig string) error {
	_, err := transformers(ctx, encryptionConfig)
	return err
}
