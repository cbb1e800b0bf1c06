// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ownedobject

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestHasLabels(t *testing.T) {
	want := map[string]string{"made-by": "us", "owner": "box"}
	for name, test := range map[string]struct {
		is, want map[string]string
		has      bool
	}{
		"all, and more": {is: map[string]string{"made-by": "us", "owner": "box", "a": "b"}, want: want, has: true},
		"one":           {is: map[string]string{"made-by": "us"}, want: want},
		"another owner": {is: map[string]string{"made-by": "us", "owner": "bin"}, want: want},
		"none":          {want: want},
		"none wanted":   {is: want},
		"empty is not absent": {
			is: map[string]string{"made-by": "us"}, want: map[string]string{"made-by": "us", "owner": ""},
		},
	} {
		if got := hasLabels(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: test.is}}, test.want); got != test.has {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestBelongsTo(t *testing.T) {
	reconciler := Reconciler[*corev1.Service]{OwnerKind: "Sandbox"}
	owner := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "box", UID: "u"}}
	labels := map[string]string{"made-by": "us", "owner": "box"}
	by := func(uid types.UID, change ...func(*metav1.OwnerReference)) []metav1.OwnerReference {
		ref := metav1.OwnerReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Sandbox", Name: "box", UID: uid, Controller: new(true),
		}
		for _, f := range change {
			f(&ref)
		}
		return []metav1.OwnerReference{ref}
	}
	named := func(name string) func(*metav1.OwnerReference) {
		return func(o *metav1.OwnerReference) { o.Name = name }
	}
	ofKind := func(apiVersion, kind string) func(*metav1.OwnerReference) {
		return func(o *metav1.OwnerReference) { o.APIVersion, o.Kind = apiVersion, kind }
	}
	for name, test := range map[string]struct {
		is   metav1.ObjectMeta
		want bool
	}{
		"owned":                  {metav1.ObjectMeta{OwnerReferences: by("u")}, true},
		"lost":                   {metav1.ObjectMeta{Labels: labels}, true},
		"of others as well":      {metav1.ObjectMeta{Labels: labels, OwnerReferences: []metav1.OwnerReference{{UID: "o"}}}, true},
		"another's":              {metav1.ObjectMeta{Labels: labels, OwnerReferences: by("o", named("bin"))}, false},
		"of one before":          {metav1.ObjectMeta{Labels: labels, OwnerReferences: by("o")}, true},
		"... and not labelled":   {metav1.ObjectMeta{OwnerReferences: by("o")}, false},
		"another kind's":         {metav1.ObjectMeta{Labels: labels, OwnerReferences: by("o", ofKind("agents.kruise.io/v1alpha1", "SandboxSet"))}, false},
		"in other words":         {metav1.ObjectMeta{Labels: labels, OwnerReferences: by("o", ofKind("agents.x-k8s.io/v1beta1", "Sandbox"))}, true},
		"another group's":        {metav1.ObjectMeta{Labels: labels, OwnerReferences: by("o", ofKind("example.com/v1beta1", "Sandbox"))}, false},
		"of no version":          {metav1.ObjectMeta{Labels: labels, OwnerReferences: by("o", ofKind("a/b/c", "Sandbox"))}, false},
		"of our next version":    {metav1.ObjectMeta{Labels: labels, OwnerReferences: by("o", ofKind("agents.kruise.io/v1", "Sandbox"))}, true},
		"with one of the labels": {metav1.ObjectMeta{Labels: map[string]string{"made-by": "us"}}, false},
		"unrelated":              {metav1.ObjectMeta{}, false},
	} {
		if got := reconciler.belongsTo(&corev1.Service{ObjectMeta: test.is}, owner, labels); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAdopt(t *testing.T) {
	owner := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	controller := metav1.OwnerReference{Name: "box", UID: "u", Controller: new(true)}
	before := metav1.OwnerReference{Name: "box", UID: "before", Controller: new(true)}
	other := metav1.OwnerReference{Name: "other", UID: "o"}
	none := metav1.OwnerReference{Name: "none", UID: "n", Controller: new(false)}
	want := &corev1.Service{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{controller}}}
	keeper := metav1.OwnerReference{Name: "keeper", UID: "k"}
	kept := &corev1.Service{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{keeper, before}}}
	adopt(kept, owner, &corev1.Service{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{controller, keeper}}})
	if diff := cmp.Diff([]metav1.OwnerReference{controller, keeper}, kept.OwnerReferences); diff != "" {
		t.Errorf("two that are wanted (-want +got):\n%s", diff)
	}
	for name, test := range map[string]struct{ is, want []metav1.OwnerReference }{
		"no owners":       {want: []metav1.OwnerReference{controller}},
		"others' as well": {is: []metav1.OwnerReference{other}, want: []metav1.OwnerReference{other, controller}},
		"of one before":   {is: []metav1.OwnerReference{before, other, none}, want: []metav1.OwnerReference{other, none, controller}},
		"not controlled":  {is: []metav1.OwnerReference{{Name: "box", UID: "u"}, other}, want: []metav1.OwnerReference{other, controller}},
	} {
		object := &corev1.Service{ObjectMeta: metav1.ObjectMeta{OwnerReferences: test.is}}
		adopt(object, owner, want)
		if diff := cmp.Diff(test.want, object.OwnerReferences); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What is wrong with a field waits for the next change of the owner, everything else is
// retried. An event says what the cluster refuses.
func TestHandleWriteError(t *testing.T) {
	kind := corev1.SchemeGroupVersion.WithKind("Service").GroupKind()
	terminating := apierrors.NewForbidden(corev1.Resource("services"), "box", errors.New("the namespace ends"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	policy := apierrors.NewInvalid(kind, "box", nil)
	policy.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: "denied by policy"}}
	bare := apierrors.NewInvalid(kind, "box", nil)
	bare.ErrStatus.Details = nil
	for name, test := range map[string]struct {
		err          error
		again, event bool
	}{
		"nothing":                        {},
		"a field":                        {err: apierrors.NewInvalid(kind, "box", field.ErrorList{field.Required(field.NewPath("spec"), "")}), event: true},
		"a policy":                       {err: policy, again: true, event: true},
		"no details":                     {err: bare, again: true, event: true},
		"forbidden":                      {err: apierrors.NewForbidden(corev1.Resource("services"), "box", errors.New("quota")), again: true, event: true},
		"a webhook that does not answer": {err: apierrors.NewInternalError(errors.New("failed calling webhook")), again: true, event: true},
		"no namespace":                   {err: apierrors.NewNotFound(corev1.Resource("namespaces"), "ns")},
		"a bad request":                  {err: apierrors.NewBadRequest("a webhook denied the request"), again: true, event: true},
		"an ending":                      {err: terminating},
		"another state":                  {err: apierrors.NewConflict(corev1.Resource("services"), "box", errors.New("changed")), again: true},
		"no connection":                  {err: errors.New("connection refused"), again: true},
		"a field, wrapped": {err: fmt.Errorf("wrapped: %w",
			apierrors.NewInvalid(kind, "box", field.ErrorList{field.Required(field.NewPath("spec"), "")})), event: true},
	} {
		recorder := events.NewFakeRecorder(10)
		reconciler := Reconciler[*corev1.Service]{Kind: "Service", Recorder: recorder}
		if err := reconciler.handleWriteError(&v1alpha1.Sandbox{}, &corev1.Service{}, test.err); (err != nil) != test.again {
			t.Errorf("%s: %v", name, err)
		}
		var want []string
		if test.event {
			want = []string{"Warning ServiceFailed " + test.err.Error()}
		}
		if diff := cmp.Diff(want, recorded(recorder)); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", name, diff)
		}
	}
}
