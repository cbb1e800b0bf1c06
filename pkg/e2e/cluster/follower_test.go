// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fieldselectors "k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// follower is a client that keeps a copy of the sandboxes of a namespace by a
// watch, as controllers and gateways do. The way of its watch can be blocked, so
// that it learns late of what happened to the server.
type follower struct {
	*gate
	clients   *clients
	namespace string
	informer  cache.SharedInformer
}

func (s *site) follow(t *testing.T, namespace string) *follower {
	t.Helper()
	c := s.clients
	gate := newGate(t, hostOf(t, s.Config().Host))
	through := s.Config()
	through.Host = gate.url()
	// HTTP/2 would look after the connection, and begin anew.
	through.NextProtos = []string{"http/1.1"}
	source := cache.NewListWatchFromClient(clientsFor(t, through).RESTClient(), "sandboxes", namespace, fieldselectors.Everything())
	f := &follower{gate: gate, clients: c, namespace: namespace, informer: cache.NewSharedInformer(source, &v1alpha1.Sandbox{}, 0)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.informer.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	f.awaitSame(t)
	return f
}

// miss blocks the way until the server has written more than it had then. The
// watch continues from a time that the server may have lived through differently.
func (f *follower) miss(t *testing.T, disaster func()) {
	t.Helper()
	f.block()
	before := f.revision(t)
	disaster()
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if now := f.revision(t); now <= before {
			return fmt.Errorf("the server is at %d, and was at %d", now, before)
		}
		return nil
	})
	f.open()
}

func (f *follower) revision(t *testing.T) uint64 {
	t.Helper()
	list, err := f.clients.Sandboxes(f.namespace).List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	revision, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// awaitSame waits until the copy is what the server has.
func (f *follower) awaitSame(t *testing.T) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		list, err := f.clients.Sandboxes(f.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		have, want := map[string]string{}, map[string]string{}
		for i := range list.Items {
			want[list.Items[i].Name] = list.Items[i].ResourceVersion
		}
		for _, object := range f.informer.GetStore().List() {
			sandbox := object.(*v1alpha1.Sandbox)
			have[sandbox.Name] = sandbox.ResourceVersion
		}
		if !maps.Equal(have, want) {
			return fmt.Errorf("a client that watches sees other sandboxes than there are (-want +got):\n%s", cmp.Diff(want, have))
		}
		return nil
	})
}
