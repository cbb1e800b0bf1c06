// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ownedobject

import (
	"context"
	"strings"
	"testing"

	"k8s.io/client-go/tools/events"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// recorded are the events that were recorded, in their order.
func recorded(recorder *events.FakeRecorder) (all []string) {
	for len(recorder.Events) > 0 {
		all = append(all, <-recorder.Events)
	}
	return all
}

// TestFailureEvents: an owner that does not get what it wants has an event that says why.
func TestFailureEvents(t *testing.T) {
	api := testutil.Start(t).RuntimeClient(t)
	owner := ownerOf("now")
	another := wantOf(ownerOf("other"), "one")
	another.Labels = nil
	for _, step := range []struct {
		name string
		// exists is what has the name already; nil is nothing.
		exists *v1alpha1.SandboxTemplate
		image  string
		want   string
	}{
		{"a create is refused", nil, " ", "SandboxTemplateFailed"},
		{"a correction is refused", wantOf(owner, "one"), " ", "SandboxTemplateFailed"},
		{"the name is taken", another, "two", "SandboxTemplateNameTaken"},
		{"all is well", wantOf(owner, "one"), "two", ""},
	} {
		t.Run(step.name, func(t *testing.T) {
			if step.exists != nil {
				if err := api.Create(t.Context(), step.exists); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := api.Delete(context.WithoutCancel(t.Context()), step.exists); err != nil {
						t.Error(err)
					}
				})
			}
			recorder := events.NewFakeRecorder(10)
			if _, err := reconcilerOf(api, recorder).Ensure(t.Context(), owner, wantOf(owner, step.image)); err != nil {
				t.Fatal(err)
			}
			all := recorded(recorder)
			if step.want == "" && len(all) > 0 || step.want != "" && (len(all) != 1 || !strings.HasPrefix(all[0], "Warning "+step.want+" ")) {
				t.Errorf("the events are %q, want %q", all, step.want)
			}
		})
	}
}
