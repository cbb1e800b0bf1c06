// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"time"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/client-go/tools/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// ListerWatcher reads the objects of a kind straight from the server's watch
// cache, for an informer in the same process: it spares both sides the JSON. The
// objects share memory with the watch cache and must not be changed, as those of any
// informer. nil means that the kind can't be had this way.
func (s *Server) ListerWatcher(kind runtime.Object) cache.ListerWatcher {
	switch kind.(type) {
	case *v1alpha1.Sandbox:
		return listerWatcher(s.allocation.feeds.sandboxes.store)
	case *v1alpha1.SandboxSet:
		return listerWatcher(s.allocation.feeds.sets.store)
	case *v1alpha1.SandboxTemplate:
		return listerWatcher(s.allocation.feeds.templates.store)
	case *v1alpha1.SandboxClaim:
		return listerWatcher(s.allocation.feeds.claims.store)
	}
	return nil
}

// readyInterval is how often a watch cache is asked whether it is filled.
const readyInterval = 20 * time.Millisecond

// inProcess is what reads the watch cache of the same process.
type inProcess struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported has reflectors begin with a list. It shares what the
// objects in the watch cache refer to; the watch would send a copy of each.
func (inProcess) IsWatchListSemanticsUnSupported() bool { return true }

// listerWatcher waits for the watch cache: to be refused while that is being filled, and
// to try again after a while, as clients do, would add seconds to each start.
func listerWatcher(store *genericregistry.Store) inProcess {
	ready := func(ctx context.Context) error {
		return wait.PollUntilContextCancel(ctx, readyInterval, true, func(context.Context) (bool, error) {
			return store.ReadinessCheck() == nil, nil
		})
	}
	return inProcess{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			internal, err := internalOptions(options)
			if err == nil {
				err = ready(ctx)
			}
			if err != nil {
				return nil, err
			}
			return store.List(ctx, internal)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			internal, err := internalOptions(options)
			if err == nil {
				err = ready(ctx)
			}
			if err != nil {
				return nil, err
			}
			w, err := store.Watch(ctx, internal)
			if err != nil {
				return nil, err
			}
			return base.TransformEvents(w, unwrapped), nil
		},
	}}
}

func internalOptions(options metav1.ListOptions) (*metainternalversion.ListOptions, error) {
	internal := &metainternalversion.ListOptions{}
	err := metainternalversion.Convert_v1_ListOptions_To_internalversion_ListOptions(&options, internal, nil)
	return internal, err
}

// unwrapped replaces what the watch cache sends to many watchers at once, which
// is encoded only once for all of them, by the object inside.
func unwrapped(event watch.Event) watch.Event {
	if shared, ok := event.Object.(runtime.CacheableObject); ok {
		event.Object = shared.GetObject()
	}
	return event
}
