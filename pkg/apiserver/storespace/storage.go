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

// Counting wraps getter so that the limiter counts all writes. Writes that exceed a limit fail
// with 429, except those of exempt users.
//
// Bytes are counted in TransformToStorage, through which every write passes with the context of
// its request. A write that then fails with a conflict stays counted.
func Counting(getter generic.RESTOptionsGetter, limiter *Limiter, exempt sets.Set[string]) generic.RESTOptionsGetter {
	return countingOptions{getter, limiter, exempt}
}

type countingOptions struct {
	generic.RESTOptionsGetter
	limiter *Limiter
	exempt  sets.Set[string]
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
	config.Transformer = counting{config.Transformer, o.limiter, o.exempt}
	options.StorageConfig = &config
	return options, nil
}

// counting counts the bytes that it transforms.
type counting struct {
	value.Transformer
	limiter *Limiter
	exempt  sets.Set[string]
}

// TransformToStorage implements value.Transformer.
func (c counting) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	write := Write{Namespace: genericapirequest.NamespaceValue(ctx), Bytes: len(data) + len(dataCtx.AuthenticatedData())}
	write.User, write.Exempt = Requester(ctx, c.exempt)
	_, err := c.limiter.Take(write)
	if exceeded := (*ExceededError)(nil); errors.As(err, &exceeded) {
		return nil, apierrors.NewTooManyRequests(exceeded.Error(), int(math.Ceil(exceeded.RetryAfter.Seconds())))
	}
	return c.Transformer.TransformToStorage(ctx, data, dataCtx)
}

// Requester returns the user that a write counts for, and whether it is exempt: the write that
// begins a deletion, the server's own writes, and those of exemptUsers and system controllers. Of
// these, only the first kind counts for a user.
func Requester(ctx context.Context, exemptUsers sets.Set[string]) (user string, exempt bool) {
	who, ok := genericapirequest.UserFrom(ctx)
	if !ok || exemptUsers.Has(who.GetName()) || base.IsSystemController(ctx) {
		return "", true
	}
	return who.GetName(), base.BeginsDeletion(ctx)
}
