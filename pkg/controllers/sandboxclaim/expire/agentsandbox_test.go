// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package expire

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// actions is a recorder that keeps the actions and notes of events.
type actions struct {
	recorder.EventRecorder
	seen []string
}

func (a *actions) Eventf(_, _ runtime.Object, _, reason, action, note string, args ...any) {
	a.seen = append(a.seen, reason+", "+action+": "+fmt.Sprintf(note, args...))
}

// TestAgentEvents: a claim of agent-sandbox says that it has expired, and that it is
// deleted then, in the words of that API.
func TestAgentEvents(t *testing.T) {
	events := &actions{}
	deleted := interceptor.NewClient(nil, interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return nil },
	})
	c := New(deleted, nil, nil, 1, true)
	c.recorder.EventRecorder = events
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup}}}
	claim.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{ShutdownPolicy: v1alpha1.ShutdownDelete}
	c.recordExpiry(claim)
	if err := c.deleteClaim(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	const note = "Deleting Claim (ShutdownPolicy=Delete)"
	if diff := cmp.Diff([]string{"ClaimExpired, Claim Expired: " + note, "ClaimExpired, Deleting: " + note}, events.seen); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
