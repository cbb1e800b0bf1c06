// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/google/go-cmp/cmp"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
)

func TestCollection(t *testing.T) {
	_, _, api := startAPI(t)
	tests := map[string]struct {
		make func(f *fixture)
		want []string
	}{
		"nothing is deleted": {
			make: func(f *fixture) {
				set, claim := f.create(kindSet, "set"), f.create(kindClaim, "claim")
				f.create(kindSandbox, "unused", controlled(of(kindSet, set)))
				f.create(kindSandbox, "used", controlled(of(kindClaim, claim)))
				f.create(kindSandbox, "free")
				f.create(kindTemplate, "revision", controlled(of(kindSet, set)))
			},
			want: []string{"Sandbox free", "Sandbox unused of set", "Sandbox used of claim", "SandboxClaim claim",
				"SandboxSet set", "SandboxTemplate revision of set"},
		},
		"a set": {
			make: func(f *fixture) {
				set, other := f.create(kindSet, "set"), f.create(kindSet, "other")
				f.create(kindSandbox, "free")
				f.create(kindSandbox, "of-other", controlled(of(kindSet, other)))
				f.create(kindSandbox, "of-set", controlled(of(kindSet, set)))
				f.create(kindTemplate, "revision", controlled(of(kindSet, set)))
				f.remove(set, background)
			},
			want: []string{"Sandbox free", "Sandbox of-other of other", "SandboxSet other"},
		},
		"in other words": {
			make: func(f *fixture) {
				set, claim, kept := f.create(kindSet, "set"), f.create(kindClaim, "claim"), f.create(kindClaim, "kept")
				f.create(kindSandbox, "unused", controlled(inWords("extensions.agents.x-k8s.io/v1beta1", "SandboxWarmPool", set)))
				f.create(kindSandbox, "used", controlled(inWords("extensions.agents.x-k8s.io/v1beta1", "SandboxClaim", claim)))
				f.create(kindSandbox, "held", controlled(inWords("extensions.agents.x-k8s.io/v1alpha1", "SandboxClaim", kept)))
				f.remove(set, background)
				f.remove(claim, foreground)
			},
			want: []string{"Sandbox held of kept", "SandboxClaim kept"},
		},
		"a set, foreground": {
			make: func(f *fixture) {
				set := f.create(kindSet, "set")
				f.create(kindSandbox, "free")
				f.create(kindSandbox, "of-set", controlled(of(kindSet, set)))
				f.create(kindTemplate, "revision", controlled(of(kindSet, set)))
				f.remove(set, foreground)
			},
			// The rest is for the controller of the pool.
			want: []string{"Sandbox free", "SandboxSet set held by " + v1alpha1.FinalizerPool},
		},
		"a set, orphan": {
			make: func(f *fixture) {
				set := f.create(kindSet, "set")
				f.create(kindSandbox, "a", controlled(of(kindSet, set)))
				f.create(kindSandbox, "b", of(kindSet, set))
				f.create(kindTemplate, "revision", controlled(of(kindSet, set)))
				f.remove(set, orphan)
			},
			want: []string{"Sandbox a", "Sandbox b", "SandboxTemplate revision"},
		},
		"a claim, foreground": {
			make: func(f *fixture) {
				claim := f.create(kindClaim, "claim")
				f.create(kindSandbox, "a", controlled(of(kindClaim, claim)))
				f.create(kindSandbox, "b", controlled(of(kindClaim, claim)))
				f.remove(claim, foreground)
			},
		},
		"a claim, foreground, one of whose sandboxes is held": {
			make: func(f *fixture) {
				claim := f.create(kindClaim, "claim")
				f.create(kindSandbox, "a", controlled(of(kindClaim, claim)))
				f.setFinalizers(f.create(kindSandbox, "b", controlled(of(kindClaim, claim))), `["`+held+`"]`)
				f.remove(claim, foreground)
			},
			want: []string{"Sandbox b of claim held by " + held, "SandboxClaim claim held by foregroundDeletion"},
		},
		"a claim, orphan": {
			make: func(f *fixture) {
				claim := f.create(kindClaim, "claim")
				f.create(kindSandbox, "a", controlled(of(kindClaim, claim)))
				f.remove(claim, orphan)
			},
			want: []string{"Sandbox a"},
		},
		"a claim, orphan, whose sandbox is on its way": {
			make: func(f *fixture) {
				claim := f.create(kindClaim, "claim")
				sandbox := f.create(kindSandbox, "a", controlled(of(kindClaim, claim)))
				f.setFinalizers(sandbox, `["`+held+`"]`)
				f.remove(sandbox, background)
				f.remove(claim, orphan)
			},
			want: []string{"Sandbox a held by " + held},
		},
		"a claim with a finalizer": {
			make: func(f *fixture) {
				claim := f.create(kindClaim, "claim")
				f.setFinalizers(claim, `["`+held+`"]`)
				f.create(kindSandbox, "a", controlled(of(kindClaim, claim)))
				f.remove(claim, background)
			},
			want: []string{"Sandbox a of claim", "SandboxClaim claim held by " + held},
		},
		"a claim with a finalizer, foreground": {
			make: func(f *fixture) {
				claim := f.create(kindClaim, "claim")
				f.setFinalizers(claim, `["`+held+`"]`)
				f.create(kindSandbox, "a", controlled(of(kindClaim, claim)))
				f.remove(claim, foreground)
			},
			want: []string{"SandboxClaim claim held by " + held},
		},
		"sandboxes": {
			make: func(f *fixture) {
				for name, policy := range map[string]metav1.DeletionPropagation{"a": background, "b": foreground, "c": orphan} {
					f.remove(f.create(kindSandbox, name), policy)
				}
			},
		},
		"templates": {
			make: func(f *fixture) {
				for name, policy := range map[string]metav1.DeletionPropagation{"a": background, "b": foreground, "c": orphan} {
					f.remove(f.create(kindTemplate, name), policy)
				}
			},
		},
		"sandboxes that own sandboxes": {
			make: func(f *fixture) {
				for name, policy := range map[string]metav1.DeletionPropagation{"a": background, "b": foreground, "c": orphan} {
					sandbox := f.create(kindSandbox, name)
					child := f.create(kindSandbox, name+"-child", of(kindSandbox, sandbox))
					f.create(kindSandbox, name+"-grandchild", of(kindSandbox, child))
					f.remove(sandbox, policy)
				}
			},
			want: []string{"Sandbox c-child", "Sandbox c-grandchild of c-child"},
		},
		"one of two owners": {
			make: func(f *fixture) {
				stays := f.create(kindSandbox, "stays")
				for name, policy := range map[string]metav1.DeletionPropagation{"a": background, "b": foreground, "c": orphan} {
					claim := f.create(kindClaim, name)
					f.create(kindSandbox, "of-"+name, controlled(of(kindClaim, claim)), of(kindSandbox, stays))
					f.remove(claim, policy)
				}
			},
			want: []string{"Sandbox of-a of stays", "Sandbox of-b of stays", "Sandbox of-c of stays", "Sandbox stays"},
		},
		"both owners": {
			make: func(f *fixture) {
				a, b := f.create(kindClaim, "a"), f.create(kindSet, "b")
				f.create(kindSandbox, "sandbox", controlled(of(kindClaim, a)), of(kindSet, b))
				f.remove(a, foreground)
				f.remove(b, background)
			},
		},
		"an owner of the same name": {
			make: func(f *fixture) {
				claim := f.create(kindClaim, "claim")
				f.remove(claim, background)
				f.create(kindClaim, "claim")
				f.create(kindSandbox, "sandbox", controlled(of(kindClaim, claim)))
			},
			want: []string{"SandboxClaim claim"},
		},
		"owners of unknown kinds": {
			make: func(f *fixture) {
				f.create(kindSandbox, "a", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"})
				f.create(kindSandbox, "b", metav1.OwnerReference{APIVersion: "agents.kruise.io/v9", Kind: "SandboxSet", Name: "x", UID: "x"})
			},
			want: []string{"Sandbox a of x", "Sandbox b of x"},
		},
	}
	n := 0
	for name, test := range tests {
		n++
		f := &fixture{api: api, namespace: "ns-" + strconv.Itoa(n)}
		t.Run(name, func(t *testing.T) {
			f.T = t
			test.make(f)
			f.settle()
			f.want(test.want...)
		})
	}
}

// revision stands for a cache that has shown so much.
type revision string

func (r revision) LastStoreSyncResourceVersion() string { return string(r) }

// What happens between a look and what comes of it.
func TestRaces(t *testing.T) {
	_, _, api := startAPI(t)
	fixtureOf := func(t *testing.T, name string) *fixture { return &fixture{T: t, api: api, namespace: name} }

	t.Run("a sandbox that is claimed when its set goes", func(t *testing.T) {
		f := fixtureOf(t, "claimed")
		set, claim := f.create(kindSet, "set"), f.create(kindClaim, "claim")
		sandbox := f.create(kindSandbox, "sandbox", controlled(of(kindSet, set)))
		f.remove(set, background)
		racing := New(f.cached(interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				claimed := sandbox.DeepCopyObject().(client.Object)
				claimed.SetOwnerReferences([]metav1.OwnerReference{controlled(of(kindClaim, claim))})
				if err := api.Update(ctx, claimed); err != nil {
					t.Fatal(err)
				}
				return c.Delete(ctx, o, opts...)
			},
		}), api, 1)
		if got := f.reconcile(racing, requestFor(kindSandbox, sandbox)); got.RequeueAfter != watchLag {
			t.Errorf("requeue after %s", got.RequeueAfter)
		}
		f.want("Sandbox sandbox of claim", "SandboxClaim claim")
	})

	t.Run("a sandbox that gets another owner when it is left behind", func(t *testing.T) {
		f := fixtureOf(t, "patched")
		claim, other := f.create(kindClaim, "claim"), f.create(kindSandbox, "other")
		sandbox := f.create(kindSandbox, "sandbox", of(kindClaim, claim))
		f.remove(claim, orphan)
		racing := New(f.cached(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				owned := sandbox.DeepCopyObject().(client.Object)
				owned.SetOwnerReferences([]metav1.OwnerReference{of(kindClaim, claim), of(kindSandbox, other)})
				if err := api.Update(ctx, owned); err != nil {
					t.Fatal(err)
				}
				return c.Patch(ctx, o, p, opts...)
			},
		}), api, 1)
		if got := f.reconcile(racing, requestFor(kindSandbox, sandbox)); got.RequeueAfter != watchLag {
			t.Errorf("requeue after %s", got.RequeueAfter)
		}
		f.settle()
		f.want("Sandbox other", "Sandbox sandbox of other")
	})

	t.Run("a cache that knows the owner and not what it owns", func(t *testing.T) {
		for _, policy := range []metav1.DeletionPropagation{foreground, orphan} {
			f := fixtureOf(t, "lagging-"+string(policy[0]|' '))
			claim := f.create(kindClaim, "claim")
			for i := range pageSize + 1 { // the first pageSize has only others
				f.create(kindSandbox, "a"+strconv.Itoa(i))
			}
			f.create(kindSandbox, "z", of(kindClaim, claim))
			f.remove(claim, policy)
			blind := New(interceptor.NewClient(api, interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
			}), api, 1)
			deleted := &v1alpha1.SandboxClaim{}
			for _, shown := range []revision{"", "1"} {
				blind.caches = map[string]versioned{kindSandbox: shown}
				if got := f.reconcile(blind, requestFor(kindClaim, claim)); got.RequeueAfter != watchLag {
					t.Errorf("%s, cache at %q: requeue after %s", policy, shown, got.RequeueAfter)
				}
				if err := api.Get(t.Context(), client.ObjectKeyFromObject(claim), deleted); err != nil {
					t.Errorf("%s, cache at %q: the claim: %v", policy, shown, err)
				}
			}
			// A cache as new as the claim is believed.
			blind.caches = map[string]versioned{kindSandbox: revision(deleted.ResourceVersion)}
			f.reconcile(blind, requestFor(kindClaim, claim))
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(claim), deleted); !apierrors.IsNotFound(err) {
				t.Errorf("%s, cache as new as the claim: %v", policy, err)
			}
		}
	})

	t.Run("a cache that does not know the owner", func(t *testing.T) {
		f := fixtureOf(t, "ownerless")
		claim := f.create(kindClaim, "claim")
		sandbox := f.create(kindSandbox, "sandbox", of(kindClaim, claim))
		lagging := New(f.cached(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, ok := o.(*v1alpha1.SandboxClaim); ok {
					return apierrors.NewNotFound(v1alpha1.Resource("sandboxclaims"), k.Name)
				}
				return c.Get(ctx, k, o, opts...)
			},
		}), api, 1)
		f.reconcile(lagging, requestFor(kindSandbox, sandbox))
		f.want("Sandbox sandbox of claim", "SandboxClaim claim")
	})

	t.Run("an owner that gets a finalizer", func(t *testing.T) {
		f := fixtureOf(t, "held")
		claim := f.create(kindClaim, "claim")
		f.remove(claim, foreground)
		racing := New(f.cached(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if err := api.Patch(ctx, claim.DeepCopyObject().(client.Object),
					client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))); err != nil {
					t.Fatal(err)
				}
				return c.Patch(ctx, o, p, opts...)
			},
		}), api, 1)
		f.reconcile(racing, requestFor(kindClaim, claim))
		f.want("SandboxClaim claim held by foregroundDeletion")
	})

	t.Run("what is gone already", func(t *testing.T) {
		f := fixtureOf(t, "absent")
		for kind := range kinds {
			if got := f.reconcile(New(api, api, 1), request{kind: kind, NamespacedName: client.ObjectKey{Namespace: "absent", Name: "x"}}); got.RequeueAfter != 0 {
				t.Errorf("%s: requeue after %s", kind, got.RequeueAfter)
			}
		}
	})
}

// TestRecreatedOwner: a list after a broken watch shows an owner that is gone and another
// of its name as one update.
func TestRecreatedOwner(t *testing.T) {
	_, _, api := startAPI(t)
	f := &fixture{T: t, api: api, namespace: "recreated"}
	claim := f.create(kindClaim, "claim")
	f.create(kindSandbox, "sandbox", controlled(of(kindClaim, claim)))
	f.remove(claim, background)
	again := f.create(kindClaim, "claim")
	c := New(f.cached(interceptor.Funcs{}), f.api, 1)
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[request]())
	defer q.ShutDown()
	c.events(kindClaim).Update(t.Context(), event.UpdateEvent{ObjectOld: claim, ObjectNew: again}, q)
	for range q.Len() {
		req, _ := q.Get()
		f.reconcile(c, req)
	}
	f.want("SandboxClaim claim")
}

// TestEvents lets a manager find out what there is to do: what was there before it,
// and what happens then.
func TestEvents(t *testing.T) {
	cfg, scheme, api := startAPI(t)
	f := &fixture{T: t, api: api, namespace: "default"}
	policies := map[string]metav1.DeletionPropagation{"background": background, "foreground": foreground, "orphan": orphan}
	// family makes a claim for each policy, and of each claim a sandbox.
	family := func(prefix string) map[string]client.Object {
		claims := map[string]client.Object{}
		for policy := range policies {
			claims[policy] = f.create(kindClaim, prefix+policy)
			f.create(kindSandbox, prefix+policy, controlled(of(kindClaim, claims[policy])))
		}
		return claims
	}
	for policy, claim := range family("before-") {
		f.remove(claim, policies[policy])
	}
	heldBefore := f.create(kindClaim, "held-before")
	sandboxBefore := f.create(kindSandbox, "held-before", controlled(of(kindClaim, heldBefore)))
	f.setFinalizers(sandboxBefore, `["`+held+`"]`)
	f.remove(heldBefore, foreground)
	f.remove(f.create(kindClaim, "childless-before"), foreground)
	during := family("during-")

	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{ReaderFailOnMissingInformer: true},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := New(mgr.GetClient(), mgr.GetAPIReader(), 2).Register(t.Context(), mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	await := func(want ...string) {
		t.Helper()
		expect.Eventually(t.Context(), t, func(context.Context) error {
			if diff := cmp.Diff(want, f.left()); diff != "" {
				return fmt.Errorf("what is left (-want +got):\n%s", diff)
			}
			return nil
		})
	}

	await("Sandbox before-orphan", "Sandbox during-background of during-background",
		"Sandbox during-foreground of during-foreground", "Sandbox during-orphan of during-orphan",
		"Sandbox held-before of held-before held by "+held, "SandboxClaim during-background", "SandboxClaim during-foreground",
		"SandboxClaim during-orphan", "SandboxClaim held-before held by foregroundDeletion")
	f.setFinalizers(sandboxBefore, "null")
	for policy, claim := range during {
		f.remove(claim, policies[policy])
	}
	f.remove(f.create(kindClaim, "childless-during"), foreground)
	await("Sandbox before-orphan", "Sandbox during-orphan")

	// A user changes their mind, and what comes too late.
	claim := f.create(kindClaim, "claim")
	f.setFinalizers(claim, `["`+held+`"]`)
	f.create(kindSandbox, "early", controlled(of(kindClaim, claim)))
	f.remove(claim, background)
	await("Sandbox before-orphan", "Sandbox during-orphan", "Sandbox early of claim", "SandboxClaim claim held by "+held)
	f.setFinalizers(claim, "null")
	await("Sandbox before-orphan", "Sandbox during-orphan")
	f.create(kindSandbox, "late", controlled(of(kindClaim, claim)))
	await("Sandbox before-orphan", "Sandbox during-orphan")
}
