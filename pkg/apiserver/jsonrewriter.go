// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"path"

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
	"github.com/sandlot-io/sandlot/pkg/store/rewriting"
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
	r := &jsonRewriter{kv: etcd.Client, limiter: rewriting.NewLimiter()}
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
		objects := rewriting.Rewriting{
			KV: r.kv, Limiter: r.limiter,
			Change: resource.asJSON,
			Done: func(key string, written bool, err error) error {
				if etcdtxn.IsTooLarge(err) {
					err = fmt.Errorf("%s %w, make it smaller: %w", key, errNotAsJSON, err)
				}
				if err != nil && !errors.Is(err, errNotAsJSON) {
					return err
				}
				if err != nil {
					failed++
					klog.FromContext(ctx).Error(err, "Failed to store an object as JSON")
				}
				if written {
					rewritten++
				}
				return nil
			},
		}
		if err := objects.Below(ctx, resource.prefix); err != nil {
			return rewritten, err
		}
	}
	if failed > 0 {
		return rewritten, fmt.Errorf("%d objects, which are in the log, %w", failed, errNotAsJSON)
	}
	return rewritten, nil
}

// asJSON returns an object that is stored in protobuf as it is stored in JSON, nil for any other.
func (r jsonResource) asJSON(ctx context.Context, key string, stored []byte) ([]byte, error) {
	plain, _, err := r.transformer.TransformFromStorage(ctx, stored, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("decrypting %s: %w", key, err)
	}
	if !decoding.IsProtobuf(plain) {
		return nil, nil
	}
	object, err := runtime.Decode(r.codec, plain)
	if err != nil {
		return nil, fmt.Errorf("%s %w: decoding it: %w", key, errNotAsJSON, err)
	}
	js, err := runtime.Encode(r.codec, object)
	if err != nil {
		return nil, fmt.Errorf("%s %w: %w", key, errNotAsJSON, err)
	}
	data, err := r.transformer.TransformToStorage(ctx, js, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("encrypting %s: %w", key, err)
	}
	return data, nil
}
