// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"context"
	"fmt"
	"path"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/sandlot-io/sandlot/pkg/apiserver/storekeys"
)

// loadTimeout bounds the reading of the key when a server starts.
const loadTimeout = 20 * time.Second

// Load returns the keyring of the store that lies under a prefix in etcd. The first
// server that asks makes it. It is stored as a resource is, with its encryption at rest;
// transformer is that of the resource, and nil where there is none.
func Load(ctx context.Context, kv clientv3.KV, storagePrefix string, transformer value.Transformer) (*Keyring, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	key := path.Join("/", storagePrefix, storekeys.RuntimeKey)
	made, err := toStorage(ctx, transformer, key, newSecret())
	if err != nil {
		return nil, err
	}
	// Whoever comes first makes it; all read what is there then.
	answer, err := kv.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, string(made)), clientv3.OpGet(key)).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	found := answer.Responses[len(answer.Responses)-1].GetResponseRange().Kvs
	if len(found) != 1 {
		return nil, fmt.Errorf("reading %s: got %d keys", key, len(found))
	}
	secret, stale := found[0].Value, false
	if transformer != nil {
		if secret, stale, err = transformer.TransformFromStorage(ctx, secret, value.DefaultContext(key)); err != nil {
			return nil, fmt.Errorf("decrypting %s, for which --encryption-provider-config must have the keys that it was written with: %w", key, err)
		}
	}
	keyring, err := NewKeyring(secret)
	if err != nil {
		return nil, fmt.Errorf("%s, which is in plain text unless --encryption-provider-config says how it is encrypted: %w", key, err)
	}
	if stale {
		return keyring, rewrite(ctx, kv, transformer, key, secret, found[0].ModRevision)
	}
	return keyring, nil
}

// rewrite encrypts the secret as it is to be now. Another server may have done it.
func rewrite(ctx context.Context, kv clientv3.KV, transformer value.Transformer, key string, secret []byte, at int64) error {
	stored, err := toStorage(ctx, transformer, key, secret)
	if err != nil {
		return err
	}
	_, err = kv.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", at)).
		Then(clientv3.OpPut(key, string(stored))).
		Commit()
	if err != nil {
		return fmt.Errorf("writing %s: %w", key, err)
	}
	return nil
}

func toStorage(ctx context.Context, transformer value.Transformer, key string, secret []byte) ([]byte, error) {
	if transformer == nil {
		return secret, nil
	}
	stored, err := transformer.TransformToStorage(ctx, secret, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("encrypting %s: %w", key, err)
	}
	return stored, nil
}
