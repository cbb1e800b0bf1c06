// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ownedobject

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/writepace"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// reconcilerOf is a reconciler of SandboxTemplates, which our own server has.
func reconcilerOf(api client.Client, events recorder.EventRecorder) *Reconciler[*v1alpha1.SandboxTemplate] {
	return &Reconciler[*v1alpha1.SandboxTemplate]{
		Client: api, Reader: api, Pacer: writepace.New(clock.RealClock{}), Recorder: events, Kind: "SandboxTemplate", OwnerKind: "Sandbox",
		New: func() *v1alpha1.SandboxTemplate { return &v1alpha1.SandboxTemplate{} },
		Correct: func(current, desired *v1alpha1.SandboxTemplate) (*v1alpha1.SandboxTemplate, bool) {
			corrected := current.DeepCopy()
			corrected.Spec = desired.Spec
			return corrected, imageOf(current) != imageOf(desired)
		},
	}
}

// imageOf is what objects differ in. The server orders the rest as it likes.
func imageOf(template *v1alpha1.SandboxTemplate) string {
	pod, err := v1alpha1.PodTemplate(template.Spec.Template)
	if err != nil {
		panic(err)
	}
	return pod.Spec.Containers[0].Image
}

func ownerOf(uid types.UID) *v1alpha1.Sandbox {
	return &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "box", UID: uid}}
}

// wantOf is what an owner wants, with an image.
func wantOf(owner *v1alpha1.Sandbox, image string) *v1alpha1.SandboxTemplate {
	return &v1alpha1.SandboxTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "box", Labels: map[string]string{"owner": "box"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1alpha1.SchemeGroupVersion.WithKind("Sandbox"))},
		},
		Spec: v1alpha1.SandboxTemplateSpec{EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
			Template: &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"c","image":"` + image + `"}]}}`)},
		}},
	}
}

// An object of an owner that was deleted and created again belongs to the new one at
// once, which corrects or deletes it.
func TestTakeOver(t *testing.T) {
	server := testutil.Start(t)
	api := server.RuntimeClient(t)
	reconciler := reconcilerOf(api, nil)
	before, owner := ownerOf("before"), ownerOf("now")
	for _, each := range []*v1alpha1.Sandbox{before, owner} {
		if again, err := reconciler.Ensure(t.Context(), each, wantOf(each, "of-"+string(each.UID))); err != nil || again.RequeueAfter != 0 {
			t.Fatalf("%s: %v, %v", each.UID, again, err)
		}
	}
	kept := &v1alpha1.SandboxTemplate{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(owner), kept); err != nil {
		t.Fatal(err)
	}
	if !metav1.IsControlledBy(kept, owner) || len(kept.OwnerReferences) != 1 || imageOf(kept) != "of-now" {
		t.Errorf("owned by %+v, image %s", kept.OwnerReferences, imageOf(kept))
	}
	last := ownerOf("last") // which wants none
	if err := reconciler.Remove(t.Context(), api, last, "box", map[string]string{"owner": "box"}); err != nil {
		t.Fatal(err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(owner), kept); !apierrors.IsNotFound(err) {
		t.Errorf("it is left: %v", err)
	}
}
