// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Watch returns the changes of the metadata of one object; namespace is empty where its
// kind has none. Each has a cache of its own, because a right to one name is a right to
// lists of that name alone.
func Watch(mgr ctrl.Manager, kind schema.GroupVersionKind, namespace, name string, concerned handler.MapFunc) (source.Source, error) {
	by := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
	if namespace != "" {
		by.Namespaces = map[string]cache.Config{namespace: {}}
	}
	one, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient:       mgr.GetHTTPClient(),
		Scheme:           mgr.GetScheme(),
		Mapper:           mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{metadataOf(kind): by},
	})
	if err != nil {
		return nil, fmt.Errorf("watching %s %s: %w", kind.Kind, name, err)
	}
	if err := mgr.Add(one); err != nil {
		return nil, fmt.Errorf("watching %s %s: %w", kind.Kind, name, err)
	}
	return source.Kind(one, client.Object(metadataOf(kind)), handler.EnqueueRequestsFromMapFunc(concerned)), nil
}

func metadataOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}
