// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimetest

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
)

// followInterval is between two looks at the addresses of sandboxes. It is shorter than
// servers take to give up on a runtime.
const followInterval = 50 * time.Millisecond

// Follow runs runtimes of the fleet as the function Follow says.
func (f *Fleet) Follow(t testing.TB, agents typed.AgentsV1alpha1Interface, namespace, selector string) {
	t.Helper()
	Follow(t, agents, namespace, selector, func(ip string) (func(), error) {
		_, err := f.Listen(ip)
		return func() { f.Drop(ip) }, err
	})
}

// Follow runs a runtime at the address of each sandbox of a namespace that a label selector
// matches, soon after it has one, until the sandbox has it no more or the test ends. run starts a
// runtime at an address, and returns what ends it. It is called again after an error.
func Follow(t testing.TB, agents typed.AgentsV1alpha1Interface, namespace, selector string, run func(ip string) (end func(), err error)) {
	t.Helper()
	f := &follower{t: t, sandboxes: agents.Sandboxes(namespace), selector: selector, run: run, at: map[string]followed{}}
	var following sync.WaitGroup
	t.Cleanup(following.Wait)
	following.Go(func() {
		for t.Context().Err() == nil {
			f.look()
			select {
			case <-time.After(followInterval):
			case <-t.Context().Done():
			}
		}
	})
}

type follower struct {
	t         testing.TB
	sandboxes typed.SandboxInterface
	selector  string
	run       func(ip string) (end func(), err error)
	// at has the runtimes that run, by address.
	at map[string]followed
}

// followed is the runtime of a sandbox.
type followed struct {
	sandbox types.UID
	end     func()
}

// look runs runtimes where sandboxes are, and ends those where they were.
func (f *follower) look() {
	list, err := f.sandboxes.List(f.t.Context(), metav1.ListOptions{ResourceVersion: "0", LabelSelector: f.selector})
	if err != nil {
		return // the server has ended, or the next look sees what this one does not
	}
	now := map[string]types.UID{}
	for i := range list.Items {
		if ip, err := netip.ParseAddr(list.Items[i].Status.PodInfo.PodIP); err == nil && ip.IsLoopback() {
			now[ip.String()] = list.Items[i].UID
		}
	}
	for ip, there := range f.at {
		if now[ip] != there.sandbox {
			there.end()
			delete(f.at, ip)
		}
	}
	for ip, uid := range now {
		if _, there := f.at[ip]; there {
			continue
		}
		end, err := f.run(ip)
		if err != nil {
			f.t.Logf("Runtime of sandbox %s, which is tried again: %v", uid, err) // that of another test is still there
			continue
		}
		f.at[ip] = followed{uid, end}
	}
}
