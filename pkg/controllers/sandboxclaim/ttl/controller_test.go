// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ttl_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandboxclaim/ttl"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

func TestController(t *testing.T) {
	server := testutil.Start(t)
	api := server.RuntimeClient(t)
	server.Stock(t, server.Set(t, "default", "pool", 20), 0, 20)

	tests := map[string]struct {
		ttl   time.Duration // 0 is unset
		later time.Duration // since completion
		// raced runs between the controller's read and its delete.
		raced   func(*v1alpha1.SandboxClaim) error
		deleted bool
		requeue time.Duration
	}{
		"fresh":          {ttl: time.Minute, requeue: time.Minute},
		"almost":         {ttl: time.Minute, later: 59 * time.Second, requeue: time.Second},
		"long":           {ttl: 9 * time.Hour, requeue: 5 * time.Minute},
		"due":            {ttl: time.Minute, later: time.Minute, deleted: true},
		"long due":       {ttl: time.Minute, later: time.Hour, deleted: true},
		"default, fresh": {later: 59 * time.Minute, requeue: time.Minute},
		"default, due":   {later: 60 * time.Minute, deleted: true},
		"never":          {ttl: -time.Second, later: 1000 * time.Hour},
		"just extended": {
			ttl: time.Minute, later: time.Hour,
			raced: func(claim *v1alpha1.SandboxClaim) error {
				extended := claim.DeepCopy()
				extended.Spec.TTLAfterCompleted = &metav1.Duration{Duration: 9 * time.Hour}
				return api.Update(t.Context(), extended)
			},
		},
		"just deleted": {
			ttl: time.Minute, later: time.Hour,
			raced:   func(claim *v1alpha1.SandboxClaim) error { return api.Delete(t.Context(), claim) },
			deleted: true,
		},
	}
	i := 0
	for name, test := range tests {
		i++
		t.Run(name, func(t *testing.T) {
			claim := &v1alpha1.SandboxClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("claim-%d", i)},
				Spec:       v1alpha1.SandboxClaimSpec{TemplateName: "pool", CreateOnNoStock: new(false)},
			}
			if test.ttl != 0 {
				claim.Spec.TTLAfterCompleted = &metav1.Duration{Duration: test.ttl}
			}
			if err := api.Create(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted || claim.Status.CompletionTime == nil {
				t.Fatalf("the claim did not complete: %+v", claim.Status)
			}
			racing := interceptor.NewClient(api, interceptor.Funcs{
				Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
					if test.raced != nil {
						if err := test.raced(o.(*v1alpha1.SandboxClaim)); err != nil {
							t.Fatal(err)
						}
					}
					return c.Delete(ctx, o, opts...)
				},
			})
			clock := clocktesting.NewFakePassiveClock(claim.Status.CompletionTime.Add(test.later))
			key := client.ObjectKeyFromObject(claim)
			result, err := ttl.New(racing, clock, 1, false).Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
			if err != nil {
				t.Fatal(err)
			}
			if result.RequeueAfter != test.requeue {
				t.Errorf("requeue after %s, want %s", result.RequeueAfter, test.requeue)
			}
			err = api.Get(t.Context(), key, &v1alpha1.SandboxClaim{})
			if client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			if deleted := apierrors.IsNotFound(err); deleted != test.deleted {
				t.Errorf("deleted: %v, want %v", deleted, test.deleted)
			}
			bound := &v1alpha1.Sandbox{}
			bound.Namespace, bound.Name = "default", claim.Status.Sandboxes[0].Name
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(bound), bound); err != nil || bound.DeletionTimestamp != nil {
				t.Errorf("the sandbox of the claim: %v, deleted at %v", err, bound.DeletionTimestamp)
			}
		})
	}
}
