// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// watchLasts is after how long the API server ends a watch. Opening the next one counts as contact.
const watchLasts = 20 * time.Second

// Run watches the keys until the context ends, and returns when the watch has. It is run
// once.
func (s *Secrets) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	store := tableStore{table: s.table, logger: logger}
	reflector := cache.NewReflectorWithOptions(s.listerWatcher(), &corev1.Secret{}, store, cache.ReflectorOptions{Name: "e2b-keys", Logger: &logger})
	reflector.RunWithContext(ctx)
}

// Synced reports whether all keys have been listed once. A replica that has not can
// authenticate: it reads each key by name.
func (s *Secrets) Synced() bool {
	return s.table.listed()
}

// listerWatcher lists and watches the Secrets of keys.
type listerWatcher struct{ *cache.ListWatch }

func (s *Secrets) listerWatcher() listerWatcher {
	return listerWatcher{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = ofType
			return s.client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = ofType
			options.TimeoutSeconds = new(int64(watchLasts / time.Second))
			opened, err := s.client.Watch(ctx, options)
			if err == nil {
				s.table.alive()
			}
			return opened, err
		},
	}}
}

// IsWatchListSemanticsUnSupported makes the reflector list: a watch that ends after
// watchLasts may be too short for the first objects.
func (listerWatcher) IsWatchListSemanticsUnSupported() bool { return true }

// tableStore is the table as the reflector writes it.
type tableStore struct {
	table  *table
	logger klog.Logger
}

var (
	_ cache.ReflectorStore         = tableStore{}
	_ cache.ReflectorBookmarkStore = tableStore{}
)

// Add implements cache.ReflectorStore.
func (s tableStore) Add(object any) error { return s.Update(object) }

// Update implements cache.ReflectorStore.
func (s tableStore) Update(object any) error {
	secret := object.(*corev1.Secret)
	key, err := fromSecret(secret)
	if err != nil {
		s.logger.Error(err, "Ignored Secret", "secret", klog.KObj(secret))
		s.table.onWatchDelete(strings.TrimPrefix(secret.Name, namePrefix))
		return nil
	}
	s.table.put(key)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s tableStore) Delete(object any) error {
	s.table.onWatchDelete(strings.TrimPrefix(object.(*corev1.Secret).Name, namePrefix))
	return nil
}

// Replace implements cache.ReflectorStore.
func (s tableStore) Replace(objects []any, _ string) error {
	seen := make([]Key, 0, len(objects))
	for _, object := range objects {
		secret := object.(*corev1.Secret)
		key, err := fromSecret(secret)
		if err != nil {
			s.logger.Error(err, "Ignored Secret", "secret", klog.KObj(secret))
			continue
		}
		seen = append(seen, key)
	}
	s.table.replace(seen)
	return nil
}

// Resync implements cache.ReflectorStore: there is nothing to do.
func (s tableStore) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore.
func (s tableStore) Bookmark(string) error {
	s.table.alive()
	return nil
}
