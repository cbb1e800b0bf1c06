// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package revisioncache_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage/cacher/consistency"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/store/revisioncache"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

// members is how many objects a transaction changes here.
const members = 8

// middle is a cache that stands in the middle of a revision: it has taken in some
// of its objects, and the transaction is long committed.
type middle struct {
	*pool
	names []string
	// first is the revision that made the objects, or changed all of them, before
	// the last one that changed one of them, and revision the one that changes all
	// of them again, in the middle of which the cache stands.
	first, before, revision uint64
}

// halt brings the cache to where it has taken in k objects of a revision.
func halt(t *testing.T, p *pool, k int) *middle {
	t.Helper()
	m := &middle{pool: p, names: names(members)}
	m.first = m.write(t, "first", m.names...)
	m.write(t, "other", "other")
	for _, name := range m.names {
		m.before = m.write(t, "before", name)
	}
	m.now(t)
	held := m.gate.hold(k)
	t.Cleanup(m.gate.release)
	m.revision = m.write(t, "middle", m.names...)
	select {
	case <-held:
	case <-time.After(patience):
		t.Fatal("the cache never comes to the revision")
	}
	return m
}

// meanwhile begins do while the cache stands, lets the cache continue, and returns
// when do is done. do may wait for the cache.
func (m *middle) meanwhile(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Millisecond): // it waits for the cache, or is slow
	}
	m.gate.release()
	<-done
}

func eachMiddle(t *testing.T, p *pool, test func(*testing.T, *middle)) {
	t.Helper()
	for _, k := range []int{1, members / 2, members - 1} {
		t.Run(fmt.Sprintf("%d of %d", k, members), func(t *testing.T) { test(t, halt(t, p, k)) })
	}
}

// Whatever asks for a state that is at least as new as the transaction sees the
// whole of it.
func TestReadInTheMiddle(t *testing.T) {
	p := newPool(t)
	tests := map[string]func(m *middle) metainternalversion.ListOptions{
		"now": func(*middle) metainternalversion.ListOptions { return metainternalversion.ListOptions{} },
		"now, selector": func(*middle) metainternalversion.ListOptions {
			return metainternalversion.ListOptions{LabelSelector: selector("middle")}
		},
		"now, limit": func(*middle) metainternalversion.ListOptions { return metainternalversion.ListOptions{Limit: 100} },
		"at least": func(m *middle) metainternalversion.ListOptions {
			return metainternalversion.ListOptions{ResourceVersion: format(m.revision)}
		},
		"NotOlderThan": func(m *middle) metainternalversion.ListOptions {
			return metainternalversion.ListOptions{ResourceVersion: format(m.revision), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
		},
		"Exact": func(m *middle) metainternalversion.ListOptions {
			return metainternalversion.ListOptions{ResourceVersion: format(m.revision), ResourceVersionMatch: metav1.ResourceVersionMatchExact}
		},
		"Exact by limit": func(m *middle) metainternalversion.ListOptions {
			return metainternalversion.ListOptions{ResourceVersion: format(m.revision), Limit: 100}
		},
	}
	for name, options := range tests {
		t.Run(name, func(t *testing.T) {
			eachMiddle(t, p, func(t *testing.T, m *middle) {
				var list *v1alpha1.SandboxList
				var err error
				options := options(m)
				m.meanwhile(func() { list, err = m.list(t.Context(), &options) })
				if err != nil {
					t.Fatal(err)
				}
				got := viewOf(t, list)
				delete(got, "other")
				if diff := cmp.Diff(at(m.revision, m.names...), got); diff != "" {
					t.Errorf("list at %s (-want +got):\n%s", list.ResourceVersion, diff)
				}
			})
		})
	}
	t.Run("get", func(t *testing.T) {
		eachMiddle(t, p, func(t *testing.T, m *middle) {
			got := view{}
			m.meanwhile(func() {
				for _, name := range m.names {
					ctx := genericapirequest.WithNamespace(t.Context(), registrytest.Namespace)
					obj, err := m.Get(ctx, name, &metav1.GetOptions{ResourceVersion: format(m.revision)})
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					got[name] = version(t, obj)
				}
			})
			if diff := cmp.Diff(at(m.revision, m.names...), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	})
}

// The check that compares the cache with etcd does not take a part of a revision for
// a cache that has lost something.
func TestConsistencyInTheMiddle(t *testing.T) {
	eachMiddle(t, newPool(t), func(t *testing.T, m *middle) {
		var digest *consistency.Digest
		var err error
		m.meanwhile(func() { digest, err = revisioncache.CompareWithEtcd(t.Context(), m.Storage.Storage) })
		if err != nil {
			t.Fatal(err)
		}
		if digest.CacheDigest != digest.EtcdDigest {
			t.Errorf("cache and etcd differ at %s: %v", digest.ResourceVersion, digest.DiffDetail)
		}
	})
}

// A watch that begins while the cache is in the middle of a revision receives the
// other half of it too.
func TestWatchFromTheMiddle(t *testing.T) {
	p := newPool(t)
	bookmarks := func(options metainternalversion.ListOptions) metainternalversion.ListOptions {
		options.AllowWatchBookmarks = true
		options.SendInitialEvents = new(true)
		options.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
		return options
	}
	from := func(version uint64) metainternalversion.ListOptions {
		return metainternalversion.ListOptions{ResourceVersion: format(version)}
	}
	tests := map[string]struct {
		options func(m *middle) metainternalversion.ListOptions
		// resumed: the client has seen what the cache has of the revision.
		resumed bool
	}{
		"from the revision":              {func(m *middle) metainternalversion.ListOptions { return from(m.revision) }, true},
		"from the revision before":       {func(m *middle) metainternalversion.ListOptions { return from(m.before) }, false},
		"from a revision long before":    {func(m *middle) metainternalversion.ListOptions { return from(m.first) }, false},
		"from anywhere":                  {func(*middle) metainternalversion.ListOptions { return from(0) }, false},
		"from nowhere":                   {func(*middle) metainternalversion.ListOptions { return metainternalversion.ListOptions{} }, false},
		"initial events":                 {func(*middle) metainternalversion.ListOptions { return bookmarks(metainternalversion.ListOptions{}) }, false},
		"initial events of any state":    {func(*middle) metainternalversion.ListOptions { return bookmarks(from(0)) }, false},
		"initial events of the revision": {func(m *middle) metainternalversion.ListOptions { return bookmarks(from(m.revision)) }, false},
		"initial events, not older":      {func(m *middle) metainternalversion.ListOptions { return bookmarks(from(m.before)) }, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, selects := range []string{"", label + " in (middle, last)", label + " != first"} {
				t.Run(selects, func(t *testing.T) {
					eachMiddle(t, p, func(t *testing.T, m *middle) {
						options := tc.options(m)
						if selects != "" {
							options.LabelSelector = mustParse(t, selects)
						}
						var w *watching
						var err error
						m.meanwhile(func() { w, err = m.watching(t, &options) })
						if err != nil {
							t.Fatal(err)
						}
						if tc.resumed {
							w.view = at(m.revision, m.names[:m.gate.pass]...)
						}
						defer w.Stop()
						got := w.until(t, "last", m.write(t, "last", "last"))
						delete(got, "last")
						delete(got, "other")
						if diff := cmp.Diff(at(m.revision, m.names...), got); diff != "" {
							t.Errorf("known to the client (-want +got):\n%s", diff)
						}
					})
				})
			}
		})
	}
}
