// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// recorded is a recorder that keeps what it gets, and for which object.
type recorded struct {
	t      *testing.T
	events []string
}

func (r *recorded) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	ref, ok := regarding.(*corev1.ObjectReference)
	if !ok || ref.Kind != "SandboxSet" || ref.UID == "" || ref.ResourceVersion != "" {
		r.t.Errorf("an event regards %v", regarding)
	}
	r.events = append(r.events, fmt.Sprintf("%s %s: %s", kind, reason, fmt.Sprintf(note, args...)))
}

func (r *recorded) AnnotatedEventf(regarding, related runtime.Object, _ map[string]string, kind, reason, action, note string, args ...any) {
	r.Eventf(regarding, related, kind, reason, action, note, args...)
}

func (r *recorded) want(what string, events ...string) {
	r.t.Helper()
	if diff := cmp.Diff(events, r.events); diff != "" {
		r.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
	r.events = nil
}

// One event reports a whole round, whatever its size.
func testEvents(t *testing.T, f *fixture) {
	events := &recorded{t: t}
	f.c.report.recorder = events
	f.createSet(16)
	f.reconcile()
	events.want("a fill", "Normal SandboxCreated: Created 16 sandboxes")
	f.sync()
	f.reconcile()
	events.want("nothing to do")

	f.changeSet(func(set *v1alpha1.SandboxSet) { set.Spec.Replicas = new(int32(10)) })
	f.reconcile()
	events.want("a scale-down", "Normal SandboxScaledDown: Deleted 6 sandboxes that were too many")
	f.sync()

	pooled := f.wantPooled(10)
	// The one that fails is not newer than those that start, or the refill would wait.
	slices.SortFunc(pooled, func(a, b *v1alpha1.Sandbox) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	failed := pooled[0]
	claims.BeginPoolSetup(failed, failed.CreationTimestamp.Time)
	claims.FailPoolSetup(failed, "another token", failed.CreationTimestamp.Time)
	if err := f.api.Status().Update(t.Context(), failed); err != nil {
		t.Fatal(err)
	}
	f.start(pooled[1:]...)
	f.sync()
	f.funcs.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return errors.New("exceeded quota" + strings.Repeat("ü", 1000))
	}
	f.wantRetry()
	events.want("a failure and a refusal", "Warning RuntimeInitFailed: Deleted Sandbox "+failed.Name+": another token",
		"Normal FailedSandboxDeleted: Deleted 1 sandboxes that could not be claimed any more", "Warning CreateSandboxFailed: exceeded quota"+strings.Repeat("ü", 503)+"...")
}
