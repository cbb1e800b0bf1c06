// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"path"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/decoding"
	"github.com/sandlot-io/sandlot/pkg/apiserver/storekeys"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

const (
	// jsonPageSize is how many values are read at a time. A value may have 1.5 MiB.
	jsonPageSize = 50
	// jsonRewritesPerSecond bounds what it costs the store, and those who watch it, to store all as JSON.
	jsonRewritesPerSecond = 200
)

// jsonRewriter writes objects again that are stored in protobuf. The codecs of its resources encode JSON.
type jsonRewriter struct {
	kv        clientv3.KV
	resources []jsonResource
	limiter   flowcontrol.RateLimiter
}

// jsonResource is how the objects of a resource are stored, and where.
type jsonResource struct {
	prefix      string
	codec       runtime.Codec
	transformer value.Transformer
}

func newJSONRewriter(getter generic.RESTOptionsGetter, etcd *etcdConnection) (*jsonRewriter, error) {
	r := &jsonRewriter{kv: etcd.Client, limiter: flowcontrol.NewTokenBucketRateLimiter(jsonRewritesPerSecond, jsonRewritesPerSecond)}
	for _, name := range storekeys.Resources() {
		options, err := getter.GetRESTOptions(v1alpha1.Resource(name), nil)
		if err != nil {
			return nil, fmt.Errorf("storage options of %s: %w", name, err)
		}
		transformer := options.StorageConfig.Transformer
		if transformer == nil {
			transformer = identity.NewEncryptCheckTransformer() // as the generic store
		}
		r.resources = append(r.resources, jsonResource{
			path.Join("/", etcd.prefix, options.ResourcePrefix) + "/", options.StorageConfig.Codec, transformer,
		})
	}
	return r, nil
}

// errNotAsJSON is of one object, so that others may do. Users can make such an object: JSON has six bytes
// for some characters.
var errNotAsJSON = errors.New("cannot be stored as JSON")

// rewrite writes all objects again that are stored in protobuf, and returns how many these were. It reads
// all also if some cannot be stored as JSON, and fails then. At any other error it ends.
func (r *jsonRewriter) rewrite(ctx context.Context) (int, error) {
	rewritten, failed := 0, 0
	for _, resource := range r.resources {
		start, end := resource.prefix, clientv3.GetPrefixRangeEnd(resource.prefix)
		for start != "" {
			page, err := r.kv.Get(ctx, start, clientv3.WithRange(end), clientv3.WithLimit(jsonPageSize))
			if err != nil {
				return rewritten, fmt.Errorf("reading from %s: %w", start, err)
			}
			start = ""
			for _, kv := range page.Kvs {
				changed, err := r.one(ctx, resource, kv)
				switch {
				case errors.Is(err, errNotAsJSON):
					failed++
					klog.FromContext(ctx).Error(err, "Failed to store an object as JSON")
				case err != nil:
					return rewritten, err
				case changed:
					rewritten++
				}
				if page.More {
					start = string(kv.Key) + "\x00"
				}
			}
		}
	}
	if failed > 0 {
		return rewritten, fmt.Errorf("%d objects, which are in the log, %w", failed, errNotAsJSON)
	}
	return rewritten, nil
}

// one writes an object again, if it is stored in protobuf, and if no other client wrote it meanwhile.
// Otherwise what that wrote is looked at.
func (r *jsonRewriter) one(ctx context.Context, resource jsonResource, kv *mvccpb.KeyValue) (bool, error) {
	for {
		key := string(kv.Key)
		plain, _, err := resource.transformer.TransformFromStorage(ctx, kv.Value, value.DefaultContext(key))
		if err != nil {
			return false, fmt.Errorf("decrypting %s: %w", key, err)
		}
		if !decoding.IsProtobuf(plain) {
			return false, nil
		}
		object, err := runtime.Decode(resource.codec, plain)
		if err != nil {
			return false, fmt.Errorf("%s %w: decoding it: %w", key, errNotAsJSON, err)
		}
		js, err := runtime.Encode(resource.codec, object)
		if err != nil {
			return false, fmt.Errorf("%s %w: %w", key, errNotAsJSON, err)
		}
		data, err := resource.transformer.TransformToStorage(ctx, js, value.DefaultContext(key))
		if err != nil {
			return false, fmt.Errorf("encrypting %s: %w", key, err)
		}
		if err := r.limiter.Wait(ctx); err != nil {
			return false, err
		}
		resp, err := r.kv.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision)).
			Then(clientv3.OpPut(key, string(data), clientv3.WithIgnoreLease())).
			Else(clientv3.OpGet(key)).
			Commit()
		if etcdtxn.IsTooLarge(err) {
			return false, fmt.Errorf("%s %w, make it smaller: %w", key, errNotAsJSON, err)
		}
		if err != nil {
			return false, fmt.Errorf("writing %s: %w", key, err)
		}
		if resp.Succeeded {
			return true, nil
		}
		now := resp.Responses[0].GetResponseRange().Kvs
		if len(now) == 0 {
			return false, nil // deleted
		}
		kv = now[0]
	}
}
