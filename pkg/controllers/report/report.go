// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report tells users what controllers do with their objects and why: by events,
// and by texts of a bounded length in conditions.
package report

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// MaxNote is how many bytes of text the API takes in an event.
const MaxNote = 1024

// Recorder records events on objects of one kind, of our group or a NetworkPolicy.
type Recorder struct {
	// EventRecorder is nil where events are not recorded.
	EventRecorder recorder.EventRecorder
	// Kind is the kind of the objects.
	Kind string
	// Action is what the controller was doing.
	Action string
}

// Event records an event on an object, and cuts off a note that is too long. The object
// is named without its resourceVersion, so that an event that happens again is counted
// instead of written once more.
func (r Recorder) Event(object client.Object, eventType, reason, note string) {
	if r.EventRecorder == nil {
		return
	}
	r.EventRecorder.Eventf(&corev1.ObjectReference{
		APIVersion: r.apiVersion(object), Kind: r.Kind,
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
	}, nil, eventType, reason, r.Action, "%s", Truncate(note, MaxNote))
}

// apiVersion is the group and version in which the users of an object know it.
func (r Recorder) apiVersion(object client.Object) string {
	switch object := object.(type) {
	case *v1alpha1.SandboxClaim:
		return v1alpha1.ClaimKind(object).GroupVersion().String()
	case *networkingv1.NetworkPolicy:
		return networkingv1.SchemeGroupVersion.String()
	}
	return v1alpha1.SchemeGroupVersion.String()
}

// Truncate cuts off a text that is longer than a limit in bytes, between two characters,
// and marks that with "...".
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const ending = "..."
	return strings.ToValidUTF8(text[:max(0, limit-len(ending))], "") + ending
}
