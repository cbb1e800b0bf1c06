// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtxn

import (
	"context"
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

// Resource says how the objects of one API resource are keyed and encoded. It
// is made from the same configuration as the resource's generic store, because
// the two must agree on every byte.
type Resource struct {
	pathPrefix     string
	resourcePrefix string
	codec          runtime.Codec
	transformer    value.Transformer
	versioner      storage.Versioner
}

// NewResource returns the Resource for a storage configuration and the
// resource prefix of its RESTOptions.
func NewResource(config *storagebackend.ConfigForResource, resourcePrefix string) *Resource {
	transformer := config.Transformer
	if transformer == nil {
		// What the etcd3 store does without encryption at rest.
		transformer = identity.NewEncryptCheckTransformer()
	}
	pathPrefix := path.Join("/", config.Prefix)
	if !strings.HasSuffix(pathPrefix, "/") {
		pathPrefix += "/"
	}
	if !strings.HasPrefix(resourcePrefix, "/") {
		resourcePrefix = "/" + resourcePrefix // all that the generic store does to it
	}
	return &Resource{
		pathPrefix:     pathPrefix,
		resourcePrefix: resourcePrefix,
		codec:          config.Codec,
		transformer:    transformer,
		versioner:      storage.APIObjectVersioner{},
	}
}

// Key returns the storage key of a namespaced object, as the generic store
// makes it. Both names must already be validated as path segments.
func (r *Resource) Key(namespace, name string) string {
	return r.resourcePrefix + "/" + namespace + "/" + name
}

// etcdKey returns the key under which etcd holds the storage key.
func (r *Resource) etcdKey(key string) (string, error) {
	prepared, err := storage.PrepareKey(r.resourcePrefix, key, false)
	if err != nil {
		return "", err
	}
	return r.pathPrefix + strings.TrimPrefix(prepared, "/"), nil
}

// encode returns the bytes that etcd holds for obj. It clears the object's
// resourceVersion, as the generic store does.
func (r *Resource) encode(ctx context.Context, etcdKey string, obj runtime.Object) ([]byte, error) {
	if err := r.versioner.PrepareObjectForStorage(obj); err != nil {
		return nil, fmt.Errorf("preparing %s for storage: %w", etcdKey, err)
	}
	data, err := runtime.Encode(r.codec, obj)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", etcdKey, err)
	}
	// The key is authenticated with the value, so that no ciphertext can be
	// moved to another key.
	data, err = r.transformer.TransformToStorage(ctx, data, value.DefaultContext(etcdKey))
	if err != nil {
		return nil, fmt.Errorf("encrypting %s: %w", etcdKey, err)
	}
	return data, nil
}

// decode reads what etcd holds under etcdKey at revision into obj.
func (r *Resource) decode(ctx context.Context, etcdKey string, data []byte, revision int64, obj runtime.Object) error {
	plain, _, err := r.transformer.TransformFromStorage(ctx, data, value.DefaultContext(etcdKey))
	if err != nil {
		return fmt.Errorf("decrypting %s: %w", etcdKey, err)
	}
	if _, _, err := r.codec.Decode(plain, nil, obj); err != nil {
		return fmt.Errorf("decoding %s: %w", etcdKey, err)
	}
	return r.versioner.UpdateObject(obj, uint64(revision))
}
