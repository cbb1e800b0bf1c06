// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// followInterval is between two looks at the addresses of sandboxes. It is shorter than
// servers take to give up on a runtime.
const followInterval = 50 * time.Millisecond

// Fleet is envd at addresses of simulated sandboxes.
type Fleet struct{ *runtimetest.Fleet }

// Start returns a fleet that ends with the test.
func Start(t testing.TB) *Fleet {
	t.Helper()
	f := &Fleet{runtimetest.Start(t)}
	f.Handle(func(rt *runtimetest.Runtime) http.Handler { return New(rt) })
	return f
}

// Follow runs envd at the address of each sandbox of a namespace, soon after it has one,
// until the sandbox has it no more or the test ends.
func (f *Fleet) Follow(t testing.TB, agents typed.AgentsV1alpha1Interface, namespace string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		at := map[string]types.UID{}
		for ctx.Err() == nil {
			f.look(ctx, t, agents, namespace, at)
			select {
			case <-time.After(followInterval):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		stop()
		following.Wait()
	})
}

// look runs envd where sandboxes are. at says where they were.
func (f *Fleet) look(ctx context.Context, t testing.TB, agents typed.AgentsV1alpha1Interface, namespace string, at map[string]types.UID) {
	list, err := agents.Sandboxes(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return // the server has ended, or the next look sees what this one does not
	}
	now := map[string]types.UID{}
	for i := range list.Items {
		if ip, err := netip.ParseAddr(list.Items[i].Status.PodInfo.PodIP); err == nil && ip.IsLoopback() {
			now[ip.String()] = list.Items[i].UID
		}
	}
	for ip, uid := range at {
		if now[ip] != uid {
			f.Drop(ip)
			delete(at, ip)
		}
	}
	for ip, uid := range now {
		if _, err := f.Listen(ip); err != nil {
			t.Logf("envd of sandbox %s, which is tried again: %v", uid, err) // that of another test is still there
			continue
		}
		at[ip] = uid
	}
}
