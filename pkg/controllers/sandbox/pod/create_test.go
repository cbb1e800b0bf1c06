// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
)

func TestIsRefusal(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"quota, admission":   {apierrors.NewForbidden(pods, "box", errors.New("exceeded quota")), true},
		"invalid":            {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "box", nil), true},
		"no namespace":       {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns"), true},
		"a webhook is down":  {apierrors.NewInternalError(errors.New("failed calling webhook")), true},
		"too large":          {apierrors.NewRequestEntityTooLargeError("x"), true},
		"unusable template":  {unusable(errors.New("x")), true},
		"claim of another":   {fmt.Errorf("claim %w", errPVCTaken), true},
		"wrapped":            {fmt.Errorf("creating: %w", apierrors.NewBadRequest("x")), true},
		"not who we were":    {apierrors.NewUnauthorized("x"), false},
		"overloaded":         {apierrors.NewTooManyRequests("x", 1), false},
		"too slow":           {apierrors.NewTimeoutError("x", 1), false},
		"conflict":           {apierrors.NewConflict(pods, "box", errors.New("x")), false},
		"not served now":     {apierrors.NewServiceUnavailable("x"), false},
		"bad gateway":        {apierrors.NewGenericServerResponse(http.StatusBadGateway, "post", pods, "box", "x", 0, true), false},
		"connection refused": {errors.New("connection refused"), false},
	}
	for name, test := range tests {
		if got := isRefusal(test.err); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		if got := isTry(test.err); got != test.want {
			t.Errorf("%s: counts as a try: %v", name, got)
		}
	}
	if !isTry(nil) || !isTry(podExists{apierrors.NewAlreadyExists(pods, "box")}) {
		t.Error("what was created, or is there, does not count as a try")
	}
}

func TestRefusedPlan(t *testing.T) {
	for _, p := range []v1alpha1.SandboxPhase{v1alpha1.SandboxPending, v1alpha1.SandboxResuming} {
		o := observation{sandbox: newSandbox(phase(p)), revision: revision, now: now}
		got := o.refused(errors.New(strings.Repeat("ä", 2000)))
		condition := meta.FindStatusCondition(got.status.Conditions, v1alpha1.SandboxConditionReady)
		if got.action != actionNone || got.status.Phase != p || got.status.UpdateRevision != revision || condition == nil || condition.Reason != v1alpha1.ReasonPodCreateFailed {
			t.Fatalf("plan %+v", got)
		}
		if m := condition.Message; len(m) > report.MaxNote || !utf8.ValidString(m) || !strings.HasSuffix(m, "ä...") {
			t.Errorf("message of %d bytes: %q", len(m), m)
		}
		// The next try says nothing new as long as it is refused the same way.
		o.sandbox.Status = got.status
		again := o.refused(errors.New(strings.Repeat("ä", 2000)))
		if len(again.status.Conditions) != 1 || again.status.Conditions[0] != *condition {
			t.Errorf("the second time %+v", again.status.Conditions)
		}
	}
}
