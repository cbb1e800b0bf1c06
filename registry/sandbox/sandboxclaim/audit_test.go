// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

// lastEvent is a sink that keeps the last event.
type lastEvent struct{ event *auditinternal.Event }

func (s *lastEvent) ProcessEvents(events ...*auditinternal.Event) bool {
	s.event = events[len(events)-1].DeepCopy()
	return true
}

// The audit event of a create says who got what, and nothing of a claim that
// was refused.
func TestAudit(t *testing.T) {
	tests := map[string]struct {
		err  error
		want map[string]string
	}{
		"bound": {want: map[string]string{
			"sandlot.io/claim": "mine", v1alpha1.AnnotationClaimedBy: "ann", auditSandboxes: "",
		}},
		"refused": {err: allocator.ErrSetNotFound},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := audit.WithAuditContext(context.WithoutCancel(t.Context()))
			sink := &lastEvent{}
			level := audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}
			if err := audit.AuditContextFrom(ctx).Init(level, sink); err != nil {
				t.Fatal(err)
			}
			claim := registrytest.NewSandboxClaim("mine")
			claim.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: "ann"}
			s := &bindingStorage{binder: &fakeBinder{err: tc.err}}
			if err := s.Create(ctx, key, claim, &v1alpha1.SandboxClaim{}, 0); (err != nil) != (tc.err != nil) {
				t.Fatal(err)
			}
			audit.AuditContextFrom(ctx).ProcessEventStage(ctx, auditinternal.StageResponseComplete)
			if diff := cmp.Diff(tc.want, sink.event.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuditedSandboxes(t *testing.T) {
	sandboxes := func(n int) (all []v1alpha1.ClaimedSandbox) {
		for i := range n {
			all = append(all, v1alpha1.ClaimedSandbox{Name: fmt.Sprintf("s%d", i)})
		}
		return all
	}
	for n, want := range map[int]string{0: "", 1: "s0", 3: "s0,s1,s2"} {
		if got := auditedSandboxes(sandboxes(n)); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
	if got := auditedSandboxes(sandboxes(maxAuditedSandboxes)); strings.Count(got, ",") != maxAuditedSandboxes-1 || strings.Contains(got, "more") {
		t.Errorf("the most that are named: %q", got)
	}
	if got := auditedSandboxes(sandboxes(maxAuditedSandboxes + 20)); strings.Count(got, ",") != maxAuditedSandboxes-1 || !strings.HasSuffix(got, "s99 and 20 more") {
		t.Errorf("more than are named: %q", got)
	}
}
