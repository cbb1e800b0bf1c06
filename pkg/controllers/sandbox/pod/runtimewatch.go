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
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// runtimesMaxWait is how long the controller waits for the ConfigMap before it begins
// without.
const runtimesMaxWait = 10 * time.Second

// runtimeSource sends the changes of the ConfigMap, from a cache of its own, which the
// manager does not wait for: where the ConfigMap may not be read, or not yet, only
// sandboxes with runtimes have to wait.
type runtimeSource struct {
	source.Informer
	cache cache.Cache
}

var _ source.SyncingSource = (*runtimeSource)(nil)

// WaitForSync waits a little, so that a ConfigMap that exists is rarely reported missing.
func (s *runtimeSource) WaitForSync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, runtimesMaxWait)
	defer cancel()
	s.cache.WaitForCacheSync(ctx)
	return nil
}

// nonLeaderCache is a cache that also runs in managers that are not the leader.
type nonLeaderCache struct{ cache.Cache }

func (nonLeaderCache) NeedLeaderElection() bool { return false }

// watch lets the injector read from a cache of the one ConfigMap.
func (i *injector) watch(ctx context.Context, mgr ctrl.Manager, sandboxes client.Reader) (source.Source, error) {
	own, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
			Namespaces: map[string]cache.Config{
				i.key.Namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", runtimesConfigMap)},
			},
		}},
		ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return nil, fmt.Errorf("building the cache of ConfigMap %s: %w", i.key, err)
	}
	informer, err := own.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching ConfigMap %s: %w", i.key, err)
	}
	if err := mgr.Add(nonLeaderCache{own}); err != nil {
		return nil, fmt.Errorf("adding the cache of ConfigMap %s: %w", i.key, err)
	}
	i.reader, i.synced = own, informer.HasSynced
	return &runtimeSource{Informer: source.Informer{Informer: informer, Handler: i.events(sandboxes)}, cache: own}, nil
}

// events queues the sandboxes that may be waiting for their runtimes. Those
// that run keep what they were made with.
func (i *injector) events(sandboxes client.Reader) handler.EventHandler {
	wake := func(ctx context.Context, object client.Object, q queue.Interface) {
		if client.ObjectKeyFromObject(object) != i.key {
			return
		}
		list := &v1alpha1.SandboxList{}
		if err := sandboxes.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			log.FromContext(ctx).Error(err, "Failed to list the sandboxes that wait for runtimes")
			return
		}
		for n := range list.Items {
			if sandbox := &list.Items[n]; len(sandbox.Spec.Runtimes) > 0 {
				enqueueStarting(sandbox, q)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue.Interface) { wake(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue.Interface) { wake(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue.Interface) { wake(ctx, e.Object, q) },
	}
}
