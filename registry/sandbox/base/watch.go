// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Watch watches objects. One of an object by name that begins at the version that the
// object has begins with the object where OfAgentSandbox is set.
//
// Clients of agent-sandbox create a claim, ignore the answer, and watch from the version
// that it had. There a claim changes after that. Here it is ready in the answer, and never
// changes again: without that event they would wait until they give up.
func (r *REST) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	events, err := r.Store.Watch(ctx, options)
	if err != nil || !r.OfAgentSandbox {
		return events, err
	}
	name := selectedName(options)
	if name == "" || genericapirequest.NamespaceValue(ctx) == "" { // of all namespaces, each may have it
		return events, nil
	}
	// The watch is there already: what changes from here on is in it.
	own, err := r.ofVersion(ctx, name, options)
	switch {
	case err != nil:
		events.Stop()
		return nil, err
	case own == nil:
		return events, nil
	}
	return beginWith(watch.Event{Type: watch.Added, Object: own}, events), nil
}

// selectedName is the name of the one object that a watch selects that begins at a version;
// empty for every other one.
func selectedName(options *metainternalversion.ListOptions) string {
	if options == nil || options.FieldSelector == nil || options.SendInitialEvents != nil ||
		options.ResourceVersion == "" || options.ResourceVersion == "0" {
		return ""
	}
	name, _ := options.FieldSelector.RequiresExactMatch("metadata.name")
	return name
}

// ofVersion returns the object of a name if it has the version that the options say and is
// what they select, and nil otherwise.
func (r *REST) ofVersion(ctx context.Context, name string, options *metainternalversion.ListOptions) (Object, error) {
	got, err := r.Get(ctx, name, &metav1.GetOptions{ResourceVersion: options.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		got, err = r.Get(ctx, name, &metav1.GetOptions{}) // the cache is behind
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	obj, ok := got.(Object)
	if !ok || obj.GetResourceVersion() != options.ResourceVersion {
		return nil, nil
	}
	labelSelector := options.LabelSelector
	if labelSelector == nil {
		labelSelector = labels.Everything()
	}
	predicate := r.PredicateFunc(labelSelector, options.FieldSelector)
	if matches, err := predicate.Matches(obj); err != nil || !matches {
		return nil, err
	}
	return obj, nil
}

// TransformEvents returns a watch that applies a function to the events of another watch. Unlike
// that of watch.Filter, its Stop does not wait for a reader of the events.
func TransformEvents(inner watch.Interface, transform func(watch.Event) watch.Event) watch.Interface {
	w := newRelay(inner, transform)
	go func() {
		defer close(w.events)
		if first, ok := w.next(); ok {
			w.run(transform(first))
		}
	}()
	return w
}

// relayed is how many events a relay holds. The generic handler of a watch flushes each event that none follows yet, and
// releases its slot of WaitForProcessor.
const relayed = 16

// relay is a watch that transforms the events of another watch.
type relay struct {
	inner     watch.Interface
	transform func(watch.Event) watch.Event
	events    chan watch.Event
	stop      chan struct{}
	once      sync.Once
}

func newRelay(inner watch.Interface, transform func(watch.Event) watch.Event) *relay {
	return &relay{inner: inner, transform: transform, events: make(chan watch.Event, relayed), stop: make(chan struct{})}
}

// beginWith returns a watch that sends an event before those of another watch.
func beginWith(first watch.Event, inner watch.Interface) watch.Interface {
	w := newRelay(inner, func(event watch.Event) watch.Event { return event })
	go func() {
		defer close(w.events)
		w.run(first)
	}()
	return w
}

// run sends an event, and then those of the inner watch, until one of the two watches ends.
func (w *relay) run(event watch.Event) {
	for {
		select {
		case w.events <- event:
		case <-w.stop:
			return
		}
		next, ok := w.next()
		if !ok {
			return
		}
		event = w.transform(next)
	}
}

// next returns the next event of the inner watch, or false if one of the two watches has ended.
func (w *relay) next() (watch.Event, bool) {
	select {
	case event, ok := <-w.inner.ResultChan():
		return event, ok
	case <-w.stop:
		return watch.Event{}, false
	}
}

// Stop implements watch.Interface.
func (w *relay) Stop() {
	w.once.Do(func() {
		close(w.stop)
		w.inner.Stop()
	})
}

// ResultChan implements watch.Interface.
func (w *relay) ResultChan() <-chan watch.Event { return w.events }
