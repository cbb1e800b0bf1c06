// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"context"
	"fmt"
	"path"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/pkg/apiserver/storekeys"
)

// loadTimeout bounds one reading or writing of the key.
const loadTimeout = 20 * time.Second

// source is where the key is stored. It is stored as a resource is, with its encryption at
// rest.
type source struct {
	kv  clientv3.KV
	key string
	// transformer is that of the resource, and nil where there is none.
	transformer value.Transformer
}

// Load returns the keyring of the store that lies under a prefix in etcd. The first
// server that asks makes the key. transformer is that of the resource that the key is
// encrypted as, and nil where there is none.
func Load(ctx context.Context, kv clientv3.KV, storagePrefix string, transformer value.Transformer) (*Keyring, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	s := &source{kv: kv, key: path.Join("/", storagePrefix, storekeys.RuntimeKey), transformer: transformer}
	if err := s.create(ctx); err != nil {
		return nil, err
	}
	k := &Keyring{source: s}
	return k, k.Refresh(ctx)
}

// Refresh reads the versions that there are now. If it fails, the keyring stays as it is.
func (k *Keyring) Refresh(ctx context.Context) error {
	if k.source == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	k.reading.Lock()
	defer k.reading.Unlock()
	stored, err := k.source.get(ctx)
	if err != nil {
		return err
	}
	if stored.ModRevision == k.revision {
		return nil
	}
	plain, _, err := k.source.decrypt(ctx, stored)
	if err != nil {
		return err
	}
	all, err := derive(plain)
	if err != nil {
		return fmt.Errorf("%s, which is in plain text unless --encryption-provider-config says how it is encrypted: %w", k.source.key, err)
	}
	k.versions.Store(&all)
	k.revision = stored.ModRevision
	klog.FromContext(ctx).Info("Read the key for agent-runtimes", "newestVersion", all[len(all)-1].version, "versions", len(all))
	return nil
}

// create makes the key if it is not there. It reads first, because an etcd that is full rejects
// each transaction that could write.
func (s *source) create(ctx context.Context) error {
	stored, err := s.kv.Get(ctx, s.key, clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("reading %s: %w", s.key, err)
	}
	if stored.Count == 1 {
		return nil
	}
	made, err := s.encrypt(ctx, newSecret())
	if err != nil {
		return err
	}
	// Another server that starts may have come first: then its key is read.
	_, err = s.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(s.key), "=", 0)).
		Then(clientv3.OpPut(s.key, string(made))).
		Commit()
	if err != nil {
		return fmt.Errorf("writing %s: %w", s.key, err)
	}
	return nil
}

// get returns what is stored, as it is encrypted.
func (s *source) get(ctx context.Context) (*mvccpb.KeyValue, error) {
	stored, err := s.kv.Get(ctx, s.key)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.key, err)
	}
	if len(stored.Kvs) != 1 {
		return nil, fmt.Errorf("reading %s: got %d keys; restore it from a backup, or restart all API servers to have a new one, which the agent-runtimes of bound sandboxes refuse", s.key, len(stored.Kvs))
	}
	return stored.Kvs[0], nil
}

// decrypt returns in plain text what is stored. stale means that it would be encrypted in
// another way now.
func (s *source) decrypt(ctx context.Context, stored *mvccpb.KeyValue) (plain []byte, stale bool, err error) {
	if s.transformer == nil {
		return stored.Value, false, nil
	}
	plain, stale, err = s.transformer.TransformFromStorage(ctx, stored.Value, value.DefaultContext(s.key))
	if err != nil {
		return nil, false, fmt.Errorf("decrypting %s, for which --encryption-provider-config must have the keys that it was written with (in an install, those of Secret sandlot-encryption; restore it from a backup): %w", s.key, err)
	}
	return plain, stale, nil
}

func (s *source) encrypt(ctx context.Context, plain []byte) ([]byte, error) {
	if s.transformer == nil {
		return plain, nil
	}
	stored, err := s.transformer.TransformToStorage(ctx, plain, value.DefaultContext(s.key))
	if err != nil {
		return nil, fmt.Errorf("encrypting %s: %w", s.key, err)
	}
	return stored, nil
}
