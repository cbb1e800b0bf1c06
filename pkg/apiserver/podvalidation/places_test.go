// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// TestDryRunsAtOnce: while a cluster does not answer, no namespace has more than its part of
// what is asked at a time, all together have no more than theirs, and a write that finds no
// place gets a warning that the cluster could not be asked.
func TestDryRunsAtOnce(t *testing.T) {
	asked, hold := make(chan string, 1000), make(chan struct{})
	client, err := corev1client.NewForConfig(&rest.Config{
		Host: "https://cluster.invalid", QPS: -1,
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			asked <- r.URL.Path
			<-hold
			return nil, errors.New("no route")
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	dryRun := NewDryRun(client.RESTClient(), clock.RealClock{})
	n := 0
	ask := func(ctx context.Context, namespace string) func() Result {
		n++
		pod := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"image": fmt.Sprint(n)}}}
		pod.SetNamespace(namespace)
		return func() Result { return dryRun.Pod(ctx, pod) }
	}
	var all sync.WaitGroup
	flood := func(namespace string) {
		for range 3 * maxAtOnceOfNamespace {
			one := ask(t.Context(), namespace)
			all.Go(func() { one() })
		}
		for range maxAtOnceOfNamespace {
			<-asked
		}
	}
	expectNoPlace := func(namespace string) {
		t.Helper()
		soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		result := ask(soon, namespace)()
		expect(t, result.Warnings, []string{"the cluster could not be asked: too many pods are asked about: "})
		if len(asked) > 0 {
			t.Errorf("one more was asked about: %s", <-asked)
		}
	}
	for i := range maxAtOnce / maxAtOnceOfNamespace {
		flood(fmt.Sprint("full-", i))
		if i == 0 {
			expectNoPlace("full-0")
		}
	}
	expectNoPlace("other")
	close(hold)
	all.Wait()
	if len(dryRun.places.namespaces) != 0 {
		t.Errorf("%d namespaces are remembered", len(dryRun.places.namespaces))
	}
	if !dryRun.places.all.TryAcquire(maxAtOnce) {
		t.Error("places are not given back")
	}
}
