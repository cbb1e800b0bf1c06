// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// pageSize is how many sandboxes, of up to a megabyte each, are in memory in full when all are listed.
const pageSize = 50

// Run watches until ctx is done. It starts the watch again whenever it breaks.
func (t *Table) Run(ctx context.Context) {
	reflector := cache.NewReflectorWithOptions(t.listWatch(), nil, t.store, cache.ReflectorOptions{
		Name: "routes", TypeDescription: "sandboxes of the E2B API", Clock: t.clock,
		// While the watch is broken, sandboxes that other replicas create are read one by one, so
		// the backoff is short.
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Cap: 5 * time.Second, Steps: 10, Factor: 2, Jitter: 1},
	})
	reflector.WatchListPageSize = pageSize
	reflector.RunWithContext(ctx)
}

// listWatch lists and watches the sandboxes as entries.
func (t *Table) listWatch() *cache.ListWatch {
	sandboxes := t.client.Sandboxes(metav1.NamespaceAll)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = v1alpha1.LabelSandboxID
			if options.ResourceVersion == "0" {
				options.ResourceVersion = "" // "0" would return all sandboxes in one page
			}
			page, err := sandboxes.List(ctx, options)
			if err != nil {
				return nil, err
			}
			entries := &internalversion.List{ListMeta: page.ListMeta, Items: make([]runtime.Object, 0, len(page.Items))}
			for i := range page.Items {
				entries.Items = append(entries.Items, t.report(watch.Modified, &page.Items[i]))
			}
			return entries, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = v1alpha1.LabelSandboxID
			w, err := sandboxes.Watch(ctx, options)
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, t.toEntry), nil
		},
	}
}

// toEntry replaces the sandbox of an event by its entry. It leaves other events, such as bookmarks, as they
// are.
func (t *Table) toEntry(event watch.Event) (watch.Event, bool) {
	sandbox, ok := event.Object.(*v1alpha1.Sandbox)
	if ok && (event.Type == watch.Added || event.Type == watch.Modified || event.Type == watch.Deleted) {
		event.Object = t.report(event.Type, sandbox)
	}
	return event, true
}

// report reports a sandbox to the connections, and returns its entry. The connections to a sandbox end when
// it leaves the E2B API.
func (t *Table) report(event watch.EventType, sandbox *v1alpha1.Sandbox) *entry {
	e := newEntry(sandbox)
	if event == watch.Deleted || e.id == "" {
		t.connections.SandboxDeleted(sandbox)
	} else {
		t.connections.SandboxChanged(sandbox)
	}
	return e
}
