// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/watch"
)

// TestMapped: a watch ends when it is stopped, also with an event that no one has taken, and
// when the watch behind it ends.
func TestMapped(t *testing.T) {
	t.Parallel()
	deleted := func(event watch.Event) watch.Event { event.Type = watch.Deleted; return event }
	for name, end := range map[string]func(inner *watch.FakeWatcher, w watch.Interface){
		"stopped while it waits": func(_ *watch.FakeWatcher, w watch.Interface) { w.Stop() },
		"stopped with an event": func(inner *watch.FakeWatcher, w watch.Interface) {
			inner.Add(nil)
			w.Stop()
			w.Stop()
		},
		"ended behind it": func(inner *watch.FakeWatcher, _ watch.Interface) { inner.Stop() },
	} {
		for begun, start := range map[string]func(watch.Interface) watch.Interface{
			"mapped":   func(inner watch.Interface) watch.Interface { return TransformEvents(inner, deleted) },
			"prefixed": func(inner watch.Interface) watch.Interface { return beginWith(watch.Event{Type: watch.Deleted}, inner) },
		} {
			t.Run(name+", "+begun, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { // which fails if a goroutine stays
					inner := watch.NewFake()
					w := start(inner)
					if begun == "mapped" {
						inner.Add(nil)
					}
					if got := <-w.ResultChan(); got.Type != watch.Deleted {
						t.Errorf("the first event is %v", got)
					}
					end(inner, w)
					synctest.Wait()
					if got, ok := <-w.ResultChan(); ok {
						t.Errorf("after its end there is %v", got)
					}
				})
			})
		}
	}
}
