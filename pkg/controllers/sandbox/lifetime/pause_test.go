// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package lifetime_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/lifetime"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

func TestPause(t *testing.T) {
	api := testutil.Start(t).RuntimeClient(t)
	now := time.Now().Truncate(time.Second)
	at := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(d))) }
	type spec struct {
		Paused          bool
		Pause, Shutdown *metav1.Time
	}

	tests := map[string]struct {
		spec      spec
		retention string
		raced     func(*v1alpha1.Sandbox) error // between the read and the write
		want      spec
		requeue   time.Duration
		// deleted: the controller of the shutdown time takes it, and else leaves it.
		deleted bool
	}{
		"never": {},
		"later": {spec: spec{Pause: at(time.Hour)}, want: spec{Pause: at(time.Hour)}, requeue: 5 * time.Minute},
		"in a lifetime": {
			spec: spec{Pause: at(100 * 365 * 24 * time.Hour)}, want: spec{Pause: at(100 * 365 * 24 * time.Hour)}, requeue: 5 * time.Minute,
		},
		"now":        {spec: spec{Pause: at(0)}, want: spec{Paused: true, Pause: at(0)}},
		"long ago":   {spec: spec{Pause: at(-9 * time.Hour)}, want: spec{Paused: true, Pause: at(-9 * time.Hour)}},
		"paused":     {spec: spec{Paused: true, Pause: at(-time.Hour)}, want: spec{Paused: true, Pause: at(-time.Hour)}},
		"kept":       {spec: spec{Pause: at(0), Shutdown: at(time.Minute)}, want: spec{Paused: true, Pause: at(0), Shutdown: at(time.Minute)}},
		"both due":   {spec: spec{Pause: at(0), Shutdown: at(0)}, want: spec{Pause: at(0), Shutdown: at(0)}, deleted: true},
		"never ends": {spec: spec{Pause: at(0)}, retention: "24h", want: spec{Paused: true, Pause: at(0)}},
		"retained": {
			spec: spec{Pause: at(0), Shutdown: at(time.Minute)}, retention: "24h",
			want: spec{Paused: true, Pause: at(24 * time.Hour), Shutdown: at(24 * time.Hour)},
		},
		"both due, retained": {
			spec: spec{Pause: at(-time.Hour), Shutdown: at(-time.Minute)}, retention: "forever",
			want: spec{Paused: true, Pause: at(100 * 365 * 24 * time.Hour), Shutdown: at(100 * 365 * 24 * time.Hour)},
		},
		"just extended": {
			spec: spec{Pause: at(0)},
			raced: func(sandbox *v1alpha1.Sandbox) error {
				sandbox.Spec.PauseTime = at(time.Hour)
				return api.Update(t.Context(), sandbox)
			},
			want: spec{Pause: at(time.Hour)},
		},
	}
	i := 0
	for name, test := range tests {
		i++
		t.Run(name, func(t *testing.T) {
			key := types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("sandbox-%d", i)}
			sandbox := newSandbox(key)
			sandbox.Spec.Paused, sandbox.Spec.PauseTime, sandbox.Spec.ShutdownTime = test.spec.Paused, test.spec.Pause, test.spec.Shutdown
			if test.retention != "" {
				sandbox.Annotations = map[string]string{v1alpha1.AnnotationReservePausedSandboxDuration: test.retention}
			}
			if err := api.Create(t.Context(), sandbox); err != nil {
				t.Fatal(err)
			}
			racing := interceptor.NewClient(api, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if test.raced != nil {
						if err := test.raced(sandbox.DeepCopy()); err != nil {
							t.Fatal(err)
						}
					}
					return c.Patch(ctx, o, p, opts...)
				},
			})
			clock := clocktesting.NewFakePassiveClock(now)
			request := reconcile.Request{NamespacedName: key}
			// The first one wins: the two agree about whose turn it is.
			if _, err := lifetime.NewShutdown(api, clock, 1).Reconcile(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			result, err := lifetime.NewPause(racing, clock, 1).Reconcile(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			if result.RequeueAfter != test.requeue {
				t.Errorf("requeue after %s, want %s", result.RequeueAfter, test.requeue)
			}
			err = api.Get(t.Context(), key, sandbox)
			if test.deleted {
				if client.IgnoreNotFound(err) != nil || err == nil {
					t.Errorf("not deleted: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := spec{sandbox.Spec.Paused, sandbox.Spec.PauseTime, sandbox.Spec.ShutdownTime}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("absent", func(t *testing.T) {
		c := lifetime.NewPause(api, clocktesting.NewFakePassiveClock(now), 1)
		result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "absent"}})
		if err != nil || result.RequeueAfter != 0 {
			t.Errorf("%+v, %v", result, err)
		}
	})
}

func newSandbox(key types.NamespacedName) *v1alpha1.Sandbox {
	sandbox := builders.Sandbox(key.Name)
	sandbox.Namespace = key.Namespace
	return sandbox
}
