// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"path"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// page is how many objects are read at a time; their deletion is one transaction, which etcd
// limits to 128 operations.
const page = 100

// emptyPools deletes the sandboxes under a prefix that are in a pool, and returns how many they
// were. One of them may have been handed out after the snapshot, which the store cannot know.
func emptyPools(ctx context.Context, kv clientv3.KV, prefix string, read value.ResourceTransformers) (int, error) {
	resource := v1alpha1.Resource("sandboxes")
	transformer := read.TransformerForResource(resource)
	prefix = path.Join("/", prefix, resource.Group, resource.Resource) + "/"
	deleted := 0
	for from := prefix; ; {
		answer, err := kv.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(page))
		if err != nil {
			return deleted, fmt.Errorf("reading sandboxes: %w", err)
		}
		var deletions []clientv3.Op
		for _, pair := range answer.Kvs {
			sandbox, err := decode(ctx, transformer, string(pair.Key), pair.Value)
			if err != nil {
				return deleted, err
			}
			if v1alpha1.IsInPool(sandbox) {
				deletions = append(deletions, clientv3.OpDelete(string(pair.Key)))
			}
		}
		if len(deletions) > 0 {
			if _, err := kv.Txn(ctx).Then(deletions...).Commit(); err != nil {
				return deleted, fmt.Errorf("deleting sandboxes: %w", err)
			}
			deleted += len(deletions)
		}
		if !answer.More {
			return deleted, nil
		}
		from = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
	}
}

// decoder decodes objects as they are stored, in JSON or protobuf.
var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}()

func decode(ctx context.Context, transformer value.Transformer, key string, data []byte) (*v1alpha1.Sandbox, error) {
	plain, _, err := transformer.TransformFromStorage(ctx, data, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read with the encryption configuration of the backup: %w", key, err)
	}
	sandbox := &v1alpha1.Sandbox{}
	if err := runtime.DecodeInto(decoder, plain, sandbox); err != nil {
		return nil, fmt.Errorf("%s is no sandbox: %w", key, err)
	}
	return sandbox, nil
}
