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
	secret, err := readOrCreate(ctx, kv, key, transformer)
	if err != nil {
		return nil, err
	}
	if transformer != nil {
		if secret, _, err = transformer.TransformFromStorage(ctx, secret, value.DefaultContext(key)); err != nil {
			return nil, fmt.Errorf("decrypting %s, for which --encryption-provider-config must have the keys that it was written with (in an install, those of Secret sandlot-encryption; restore it from a backup): %w", key, err)
		}
	}
	keyring, err := NewKeyring(secret)
	if err != nil {
		return nil, fmt.Errorf("%s, which is in plain text unless --encryption-provider-config says how it is encrypted: %w", key, err)
	}
	return keyring, nil
}

// readOrCreate returns what is stored under the key of the keyring, and creates it if it is not
// there. It reads first, because an etcd that is full rejects each transaction that could write.
func readOrCreate(ctx context.Context, kv clientv3.KV, key string, transformer value.Transformer) ([]byte, error) {
	stored, err := kv.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	if len(stored.Kvs) == 1 {
		return stored.Kvs[0].Value, nil
	}
	made, err := toStorage(ctx, transformer, key, newSecret())
	if err != nil {
		return nil, err
	}
	// Another server that starts may have come first: then its key is read.
	answer, err := kv.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, string(made)), clientv3.OpGet(key)).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", key, err)
	}
	found := answer.Responses[len(answer.Responses)-1].GetResponseRange().Kvs
	if len(found) != 1 {
		return nil, fmt.Errorf("reading %s: got %d keys", key, len(found))
	}
	return found[0].Value, nil
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
