// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package lifetime_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/lifetime"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

func TestShutdown(t *testing.T) {
	api := testutil.Start(t).RuntimeClient(t)
	now := time.Now().Truncate(time.Second)
	at := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(d))) }

	tests := map[string]struct {
		shutdownTime *metav1.Time
		later        time.Duration // how much time passes
		// raced runs between the controller's read and its delete.
		raced   func(*v1alpha1.Sandbox) error
		deleted bool
		requeue time.Duration
	}{
		"never":         {later: 1000 * time.Hour},
		"later":         {shutdownTime: at(time.Hour), requeue: 5 * time.Minute},
		"in a lifetime": {shutdownTime: at(100 * 365 * 24 * time.Hour), requeue: 5 * time.Minute},
		"a bit later":   {shutdownTime: at(time.Hour), later: time.Hour - time.Millisecond, requeue: time.Millisecond},
		"now":           {shutdownTime: at(time.Hour), later: time.Hour, deleted: true},
		"long ago":      {shutdownTime: at(time.Hour), later: 9 * time.Hour, deleted: true},
		"just extended": {
			shutdownTime: at(time.Hour), later: 2 * time.Hour,
			raced: func(sandbox *v1alpha1.Sandbox) error {
				extended := sandbox.DeepCopy()
				extended.Spec.ShutdownTime = at(5 * time.Hour)
				return api.Update(t.Context(), extended)
			},
		},
		"just deleted": {
			shutdownTime: at(time.Hour), later: 2 * time.Hour,
			raced:   func(sandbox *v1alpha1.Sandbox) error { return api.Delete(t.Context(), sandbox) },
			deleted: true,
		},
		"just recreated": {
			shutdownTime: at(time.Hour), later: 2 * time.Hour,
			raced: func(sandbox *v1alpha1.Sandbox) error {
				if err := api.Delete(t.Context(), sandbox); err != nil {
					return err
				}
				return api.Create(t.Context(), sandboxUntil(sandbox.Name, nil))
			},
		},
	}
	i := 0
	for name, test := range tests {
		i++
		t.Run(name, func(t *testing.T) {
			key := types.NamespacedName{Namespace: "default", Name: "sandbox-" + string(rune('a'+i))}
			if err := api.Create(t.Context(), sandboxUntil(key.Name, test.shutdownTime)); err != nil {
				t.Fatal(err)
			}
			racing := interceptor.NewClient(api, interceptor.Funcs{
				Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
					if test.raced != nil {
						if err := test.raced(o.(*v1alpha1.Sandbox)); err != nil {
							t.Fatal(err)
						}
					}
					return c.Delete(ctx, o, opts...)
				},
			})
			clock := clocktesting.NewFakePassiveClock(now.Add(test.later))
			result, err := lifetime.NewShutdown(racing, clock, 1).Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
			if err != nil {
				t.Fatal(err)
			}
			if result.RequeueAfter != test.requeue {
				t.Errorf("requeue after %s, want %s", result.RequeueAfter, test.requeue)
			}
			err = api.Get(t.Context(), key, &v1alpha1.Sandbox{})
			if client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			if deleted := apierrors.IsNotFound(err); deleted != test.deleted {
				t.Errorf("deleted: %v, want %v", deleted, test.deleted)
			}
		})
	}
}

func sandboxUntil(name string, shutdownTime *metav1.Time) *v1alpha1.Sandbox {
	sandbox := newSandbox(types.NamespacedName{Namespace: "default", Name: name})
	sandbox.Spec.ShutdownTime = shutdownTime
	return sandbox
}
