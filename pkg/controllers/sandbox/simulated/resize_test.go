// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/inplace"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

func sized(resources string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"c","image":"i","resources":` + resources + `}]}}`)}
}

const (
	two   = `{"requests":{"cpu":"2","memory":"1Gi"},"limits":{"cpu":"2","memory":"1Gi"}}`
	four  = `{"requests":{"cpu":"4","memory":"1Gi"},"limits":{"cpu":"4","memory":"1Gi"}}`
	burst = `{"requests":{"cpu":"2","memory":"1Gi"},"limits":{"cpu":"4","memory":"1Gi"}}`
)

// A sandbox that a claim left to be resized has what it asks for at once, unless no
// pod could have it.
func TestResize(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(testutil.Start(t).Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pool-rev"}}
	template.Spec.Template = sized(two)
	if err := api.Create(t.Context(), template); err != nil {
		t.Fatal(err)
	}
	unpatched := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "base-asis"}}
	unpatched.Spec.Template = sized(two)
	if err := api.Create(t.Context(), unpatched); err != nil {
		t.Fatal(err)
	}
	updating := func(kind string) metav1.Condition {
		return metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInplaceUpdating,
			Message: v1alpha1.InplaceUpdatingMessage, LastTransitionTime: metav1.NewTime(time.Unix(1, 0)),
		}
	}
	cond := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: 1}
	}
	wants := func(image string) func(*v1alpha1.Sandbox) {
		return func(s *v1alpha1.Sandbox) {
			s.Annotations = map[string]string{v1alpha1.AnnotationInplaceUpdate: `{"image":true}`}
			s.Spec.Template.Raw = []byte(strings.Replace(string(s.Spec.Template.Raw), `"image":"i"`, `"image":"`+image+`"`, 1))
		}
	}
	isReady := cond("Ready", metav1.ConditionTrue, "PodReady", "")
	tests := map[string]struct {
		revision, resources string
		change              func(*v1alpha1.Sandbox)
		want                []metav1.Condition
	}{
		"granted":                   {revision: "rev", resources: four, want: []metav1.Condition{isReady, cond("InplaceUpdate", metav1.ConditionTrue, "Succeeded", "")}},
		"the revision is not there": {revision: "gone", resources: burst, want: []metav1.Condition{isReady, cond("InplaceUpdate", metav1.ConditionTrue, "Succeeded", "")}},
		"was in no pool":            {resources: burst, want: []metav1.Condition{isReady, cond("InplaceUpdate", metav1.ConditionTrue, "Succeeded", "")}},
		"another class": {revision: "rev", resources: burst, want: []metav1.Condition{isReady, cond("InplaceUpdate", metav1.ConditionFalse, "Failed",
			"resource resize would change QoS class from Guaranteed to Burstable, resize rejected")}},
		"another class, under the template's name": {revision: "asis", resources: burst, want: []metav1.Condition{isReady, cond("InplaceUpdate", metav1.ConditionFalse, "Failed",
			"resource resize would change QoS class from Guaranteed to Burstable, resize rejected")}},
		"an image": {
			revision: "rev", resources: four, change: wants("another"),
			want: []metav1.Condition{isReady, cond("InplaceUpdate", metav1.ConditionTrue, "Succeeded", ""), cond("ImageUpdated", metav1.ConditionTrue, "Succeeded", "")},
		},
		"an image, and another class": {
			revision: "rev", resources: burst, change: wants("another"),
			want: []metav1.Condition{isReady, cond("InplaceUpdate", metav1.ConditionFalse, "Failed",
				"resource resize would change QoS class from Guaranteed to Burstable, resize rejected"), cond("ImageUpdated", metav1.ConditionTrue, "Succeeded", "")},
		},
		"an image that fails": {
			revision: "rev", resources: four, change: wants(FailImage),
			want: []metav1.Condition{
				cond("Ready", metav1.ConditionFalse, "StartContainerFailed", failedMessage),
				cond("InplaceUpdate", metav1.ConditionFalse, "Failed", failedMessage), cond("ImageUpdated", metav1.ConditionFalse, "Failed", failedMessage),
			},
		},
		"paused": {
			revision: "rev", resources: four, change: func(s *v1alpha1.Sandbox) { s.Spec.Paused = true },
			want: []metav1.Condition{
				cond("Ready", metav1.ConditionFalse, "PodReady", "The sandbox is paused"),
				cond("InplaceUpdate", metav1.ConditionFalse, v1alpha1.ReasonInplaceUpdating, v1alpha1.InplaceUpdatingMessage),
				cond("SandboxPaused", metav1.ConditionTrue, "StopPauseSucceed", ""),
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sandbox := newSandbox("", "i")
			sandbox.GenerateName = "box-"
			sandbox.Spec.Template = sized(test.resources)
			if test.revision != "" {
				sandbox.Labels = map[string]string{
					v1alpha1.LabelSandboxPool: "pool", v1alpha1.LabelSandboxTemplate: "base", v1alpha1.LabelTemplateHash: test.revision,
				}
			}
			if test.change != nil {
				test.change(sandbox)
			}
			if err := api.Create(t.Context(), sandbox); err != nil {
				t.Fatal(err)
			}
			before := sandbox.DeepCopy()
			before.Status.Phase = v1alpha1.SandboxRunning
			sandbox.Status.Phase = v1alpha1.SandboxRunning
			sandbox.Status.Conditions = []metav1.Condition{updating("Ready"), updating("InplaceUpdate")}
			if err := api.Status().Update(t.Context(), sandbox); err != nil {
				t.Fatal(err)
			}
			before.Status.ObservedGeneration = before.Generation
			if got := queued(before, sandbox); test.change == nil && got != 1 {
				t.Errorf("queued %d times", got)
			}
			controller := New(api, &templates.Lookup{Cache: api, Server: api}, clocktesting.NewFakePassiveClock(time.Now()), Options{})
			if _, err := controller.Reconcile(t.Context(), queue.RequestFor(sandbox)); err != nil {
				t.Fatal(err)
			}
			got := &v1alpha1.Sandbox{}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(sandbox), got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.Status.Conditions, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if got.Status.ObservedGeneration != got.Generation {
				t.Errorf("observed generation %d of %d", got.Status.ObservedGeneration, got.Generation)
			}
		})
	}
}

// An update continues after a pause, unless what is resumed cannot start.
func TestResizeOverAPause(t *testing.T) {
	for image, want := range map[string]string{"i": "InplaceUpdating", FailImage: "Failed"} {
		sandbox := newSandbox("box", image)
		sandbox.Status.Phase = v1alpha1.SandboxRunning
		inplace.Begin(sandbox, inplace.Goal{}, time.Unix(1, 0))
		sandbox.Spec.Paused = true
		for _, next := range []step{pause, resume, start} {
			if got := stepOf(sandbox, time.Now()); got != next {
				t.Fatalf("image %s: the next step is %d, want %d", image, got, next)
			}
			status, err := statusAfter(next, sandbox, sandbox.Spec.Template, time.Unix(2, 0))
			if err != nil {
				t.Fatal(err)
			}
			sandbox.Status, sandbox.Spec.Paused = status, false
		}
		got := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate)
		if goesOn := stepOf(sandbox, time.Now()) == resized; got == nil || got.Reason != want || goesOn != (want == v1alpha1.ReasonInplaceUpdating) {
			t.Errorf("image %s: continues: %t, with %+v", image, goesOn, got)
		}
	}
}
