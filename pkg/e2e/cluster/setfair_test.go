// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestSmallSetBesideALargeOne makes a set of one when a large set fills. Its pod does
// not wait for all pods of the large one.
func TestSmallSetBesideALargeOne(t *testing.T) {
	t.Parallel()
	const size, begun = 500, 100
	c, ns := admin(t), namespace(t)
	none, err := c.kube.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := watchtools.NewRetryWatcherWithContext(t.Context(), none.ResourceVersion, &toolscache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.kube.CoreV1().Pods(ns).Watch(ctx, o)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Stop()
	if _, err := c.SandboxSets(ns).Create(t.Context(), builders.Set("large", size), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made, before := 0, 0
	for {
		var e watch.Event
		select {
		case e = <-pods.ResultChan():
		case <-time.After(expect.Patience):
			t.Fatalf("%d pods are made", made)
		}
		pod, ok := e.Object.(*corev1.Pod)
		if !ok {
			t.Fatalf("an event of the watch: %+v", e)
		}
		if e.Type != watch.Added {
			continue
		}
		made++
		if made == begun {
			if _, err := c.SandboxSets(ns).Create(t.Context(), builders.Set("pool", 1), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			before = made
		}
		if strings.HasPrefix(pod.Name, "pool-") {
			break
		}
	}
	t.Logf("of %d pods, the small set came when %d were made, and its own was number %d", size+1, before, made)
	if left := size - before; made-before > left/2 {
		t.Errorf("%d pods were made before that of the small set, of %d to come", made-before, left)
	}
}
