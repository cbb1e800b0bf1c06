// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package storespace

import (
	"context"
	"errors"
	"math"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// Counting returns the getter's options, with stores that count in space what they write. A
// write that it refuses is answered with 429. Users that are exempt are refused nothing.
//
// Bytes are counted in TransformToStorage, through which every write passes with the context of
// its request. A write that then fails with a conflict stays counted.
func Counting(getter generic.RESTOptionsGetter, space *Space, exempt sets.Set[string]) generic.RESTOptionsGetter {
	return countingOptions{getter, space, exempt}
}

type countingOptions struct {
	generic.RESTOptionsGetter
	space  *Space
	exempt sets.Set[string]
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o countingOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	config := *options.StorageConfig
	if config.Transformer == nil {
		config.Transformer = identity.NewEncryptCheckTransformer() // as the store would
	}
	config.Transformer = counting{config.Transformer, o.space, o.exempt}
	options.StorageConfig = &config
	return options, nil
}

// counting counts what is encrypted.
type counting struct {
	value.Transformer
	space  *Space
	exempt sets.Set[string]
}

// TransformToStorage implements value.Transformer.
func (c counting) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	write := Write{Namespace: genericapirequest.NamespaceValue(ctx), Bytes: len(data) + len(dataCtx.AuthenticatedData())}
	write.User, write.Always = Requester(ctx, c.exempt)
	if exceeded := (*ExceededError)(nil); errors.As(c.space.Spend(write), &exceeded) {
		return nil, apierrors.NewTooManyRequests(exceeded.Error(), int(math.Ceil(exceeded.RetryAfter.Seconds())))
	}
	return c.Transformer.TransformToStorage(ctx, data, dataCtx)
}

// Requester returns on behalf of which user a request writes, and whether it is never refused:
// what the server does itself, deletes, and what the controllers of the system do.
func Requester(ctx context.Context, exempt sets.Set[string]) (user string, always bool) {
	who, ok := genericapirequest.UserFrom(ctx)
	if !ok || exempt.Has(who.GetName()) || base.IsSystemController(ctx) {
		return "", true
	}
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	return who.GetName(), ok && (info.Verb == "delete" || info.Verb == "deletecollection")
}
