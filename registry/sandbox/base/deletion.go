// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// lookForLeft bounds how long a deletion, which is done by then, waits for its warnings. After that it is answered without
// them.
const lookForLeft = 2 * time.Second

// DeletionWarnings computes warnings about objects that a deletion leaves behind.
type DeletionWarnings struct {
	// Concerns reports whether the deletion of an object may leave something behind.
	Concerns func(obj runtime.Object) bool
	// Warnings looks for what the deletion of these objects, of the namespace of ctx,
	// leaves. It is asked once for each request, whatever that deletes, also for a dry run.
	Warnings func(ctx context.Context, deleted Deleted) []string
}

// Deleted are the names of objects that a request deletes, by UID.
type Deleted map[types.UID]string

// Names are the names of the objects, in order.
func (d Deleted) Names() []string {
	names := make([]string, 0, len(d))
	for _, name := range d {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// note returns what notes the objects that admit lets be deleted, and what warns of what
// they leave. Controllers are not warned: they delete exactly what they have read, or all
// of a namespace.
func (l *DeletionWarnings) note(ctx context.Context, admit rest.ValidateObjectFunc, options *metav1.DeleteOptions) (rest.ValidateObjectFunc, func()) {
	if l == nil || options != nil && options.Preconditions != nil || IsSystemController(ctx) {
		return admit, func() {}
	}
	var mu sync.Mutex // a collection is deleted by several at once
	deleted := Deleted{}
	noting := func(ctx context.Context, obj runtime.Object) error {
		if admit != nil {
			if err := admit(ctx, obj); err != nil {
				return err
			}
		}
		object, ok := obj.(metav1.Object)
		if !ok || object.GetDeletionTimestamp() != nil || !l.Concerns(obj) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		deleted[object.GetUID()] = object.GetName() // once, however often the store tries
		return nil
	}
	return noting, func() {
		mu.Lock()
		defer mu.Unlock()
		if len(deleted) == 0 {
			return
		}
		within, cancel := context.WithTimeout(ctx, lookForLeft)
		defer cancel()
		if WaitForProcessor(within) == nil {
			Warn(ctx, l.Warnings(within, deleted))
		}
	}
}

// IsSystemController reports whether a request is one of kube-controller-manager's, such
// as the one that empties a namespace.
func IsSystemController(ctx context.Context) bool {
	who, ok := genericapirequest.UserFrom(ctx)
	return ok && (who.GetName() == "system:kube-controller-manager" ||
		strings.HasPrefix(who.GetName(), "system:serviceaccount:"+metav1.NamespaceSystem+":"))
}
