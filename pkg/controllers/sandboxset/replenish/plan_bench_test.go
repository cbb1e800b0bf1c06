// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"testing"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// One look at a steady pool: what a reconcile costs that has nothing to do.
func BenchmarkSteadyPool(b *testing.B) {
	for _, size := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{
				"owner": func(object any) ([]string, error) {
					return []string{string(v1alpha1.PoolOf(object.(*v1alpha1.Sandbox)).UID)}, nil
				},
			})
			for i := range size {
				if err := indexer.Add(available(fmt.Sprintf("s%06d", i)).Sandbox); err != nil {
					b.Fatal(err)
				}
			}
			set := makeSet(int32(size))
			for b.Loop() {
				objects, err := indexer.ByIndex("owner", "set")
				if err != nil {
					b.Fatal(err)
				}
				o := &observation{set: set, target: targetOf(current), now: epoch}
				for _, object := range objects {
					o.pool.sandboxes = append(o.pool.sandboxes, object.(*v1alpha1.Sandbox))
				}
				c := o.count()
				p, err := o.plan(&c, delays{})
				if err != nil || p.create != 0 || len(p.remove) != 0 {
					b.Fatal(p, err)
				}
			}
		})
	}
}
