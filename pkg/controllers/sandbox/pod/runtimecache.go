// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// runtimesPatience is how long the controller waits for the ConfigMap before it begins
// without.
const runtimesPatience = 10 * time.Second

// runtimeSource brings the changes of the ConfigMap, from a cache of its own, which
// nobody else waits for: where it may not be read, or not yet, that is a matter of the
// sandboxes with runtimes, and not of all that this manager does.
type runtimeSource struct {
	source.Informer
	cache cache.Cache
}

var _ source.SyncingSource = (*runtimeSource)(nil)

// WaitForSync waits a little, so that what is there is rarely said to be missing.
func (s *runtimeSource) WaitForSync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, runtimesPatience)
	defer cancel()
	s.cache.WaitForCacheSync(ctx)
	return nil
}

// warm is a cache that is filled in managers that do not lead, too.
type warm struct{ cache.Cache }

func (warm) NeedLeaderElection() bool { return false }

// watchRuntimes lets the injector read from a cache of the one ConfigMap.
func (c *Controller) watchRuntimes(ctx context.Context, mgr ctrl.Manager) (source.Source, error) {
	own, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
			Namespaces: map[string]cache.Config{
				c.injector.key.Namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", RuntimesConfigMap)},
			},
		}},
		ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return nil, fmt.Errorf("building the cache of ConfigMap %s: %w", c.injector.key, err)
	}
	informer, err := own.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching ConfigMap %s: %w", c.injector.key, err)
	}
	if err := mgr.Add(warm{own}); err != nil {
		return nil, fmt.Errorf("adding the cache of ConfigMap %s: %w", c.injector.key, err)
	}
	c.injector.reader, c.injector.synced = own, informer.HasSynced
	return &runtimeSource{Informer: source.Informer{Informer: informer, Handler: c.runtimeEvents()}, cache: own}, nil
}
