// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"context"
	"errors"
	"math"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// WithLimiter wraps getter so that the limiter counts all writes and rejects those that exceed a
// limit with 429, except writes of exempt users.
//
// TransformToStorage counts the bytes, because every write calls it with the context of its
// request. A write that then fails with a conflict stays counted.
func WithLimiter(getter generic.RESTOptionsGetter, limiter *Limiter, exempt sets.Set[string]) generic.RESTOptionsGetter {
	return limitedRESTOptionsGetter{getter, limiter, exempt}
}

type limitedRESTOptionsGetter struct {
	generic.RESTOptionsGetter
	limiter *Limiter
	exempt  sets.Set[string]
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (g limitedRESTOptionsGetter) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := g.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	config := *options.StorageConfig
	if config.Transformer == nil {
		config.Transformer = identity.NewEncryptCheckTransformer() // as the store would
	}
	config.Transformer = limitedTransformer{config.Transformer, g.limiter, g.exempt}
	options.StorageConfig = &config
	return options, nil
}

// limitedTransformer counts the bytes that it transforms, and what else they take in memory, and rejects those that exceed a limit.
type limitedTransformer struct {
	value.Transformer
	limiter *Limiter
	exempt  sets.Set[string]
}

// TransformToStorage implements value.Transformer.
func (t limitedTransformer) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	write := Write{Namespace: genericapirequest.NamespaceValue(ctx), Bytes: len(data) + len(dataCtx.AuthenticatedData()) + storedMemoryBytes(data)}
	write.User, write.Exempt = WriterFrom(ctx, t.exempt)
	write.Create = write.Exempt && creates(ctx)
	_, err := t.limiter.Reserve(write)
	if exceeded := (*ExceededError)(nil); errors.As(err, &exceeded) {
		refusal := apierrors.NewTooManyRequests(exceeded.Error(), int(math.Ceil(exceeded.RetryAfter.Seconds())))
		refusal.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: v1alpha1.CauseWriteLimit, Message: exceeded.Error()}}
		return nil, refusal
	}
	return t.Transformer.TransformToStorage(ctx, data, dataCtx)
}

// creates reports whether a request creates an object.
func creates(ctx context.Context) bool {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	return ok && info.Verb == "create" && info.Subresource == ""
}

// WriterFrom returns the user that a write with this context counts for, and reports whether the
// write is exempt. The first delete of an object is exempt and counts for its user. The server's
// own writes and those of exemptUsers and system controllers are exempt and count for no user.
func WriterFrom(ctx context.Context, exemptUsers sets.Set[string]) (user string, exempt bool) {
	who, ok := genericapirequest.UserFrom(ctx)
	if !ok || exemptUsers.Has(who.GetName()) || base.IsSystemController(ctx) {
		return "", true
	}
	return who.GetName(), base.BeginsDeletion(ctx)
}
