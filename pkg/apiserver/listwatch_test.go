// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// Informers in the process of the server share what they begin with, however many there are,
// and hear of what comes after it.
func TestInformersInProcess(t *testing.T) {
	server := testutil.Start(t)
	templates := server.Client.AgentsV1alpha1().SandboxTemplates(metav1.NamespaceDefault)
	create := func(name string) {
		template := builders.Template(name)
		template.Labels = map[string]string{"a": "b"}
		if _, err := templates.Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("first")
	// An informer that begins before the watch cache has it gets a copy by its watch.
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		list, err := templates.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("the watch cache is behind")
		}
		return err
	})

	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	kind := &v1alpha1.SandboxTemplate{}
	var stores []cache.Store
	for range 2 {
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		stores = append(stores, store)
		reflector := cache.NewReflectorWithOptions(server.APIServer.ListerWatcher(kind), kind, store, cache.ReflectorOptions{})
		running.Go(func() { reflector.RunWithContext(ctx) })
	}
	labels := func(name string) (at []uintptr) {
		for _, store := range stores {
			expect.Eventually(t.Context(), t, func(context.Context) error {
				found, ok, err := store.GetByKey(metav1.NamespaceDefault + "/" + name)
				if err != nil {
					return err
				}
				if !ok {
					return fmt.Errorf("template %s is not there", name)
				}
				at = append(at, reflect.ValueOf(found.(*v1alpha1.SandboxTemplate).Labels).Pointer())
				return nil
			})
		}
		return at
	}
	if at := labels("first"); at[0] != at[1] {
		t.Error("each informer has a copy of what the watch cache has")
	}
	create("second")
	labels("second")
}
