// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// entry is all that is kept of a sandbox: about 200 bytes, 400 with the entries of the maps in
// store, where the object has thousands.
// The reflector gets it instead of the object too, so that a list is never in memory in full.
type entry struct {
	// id is empty for a sandbox that is none of the E2B API after all. Its parts are the
	// namespace, up to split, and the name of the claim, two characters later.
	id   string
	name string
	uid  types.UID
	// shutdown is a Unix time; 0 is never.
	shutdown            int64
	precedence          mapping.Precedence
	split               uint8
	state               State
	autoResume, private bool
}

var (
	_ runtime.Object            = &entry{}
	_ metav1.ObjectMetaAccessor = &entry{}
)

// newEntry copies what it keeps: nothing of the sandbox stays in memory because of it.
func newEntry(sandbox *v1alpha1.Sandbox) *entry {
	e := &entry{name: strings.Clone(sandbox.Name), uid: types.UID(strings.Clone(string(sandbox.UID))), precedence: mapping.PrecedenceOf(sandbox)}
	id, ok := v1alpha1.IsE2B(sandbox)
	if !ok || len(sandbox.Namespace) > v1alpha1.MaxE2BNamespace {
		return e
	}
	e.id, e.split = strings.Clone(id), uint8(len(sandbox.Namespace))
	// The time of shutdown is compared when the route is asked for.
	switch v1alpha1.StateOf(sandbox, time.Time{}) {
	case v1alpha1.StateRunning:
		e.state = Running
	case v1alpha1.StatePaused:
		e.state = Paused
	}
	if sandbox.Spec.ShutdownTime != nil {
		e.shutdown = sandbox.Spec.ShutdownTime.Unix()
	}
	e.autoResume = sandbox.Annotations[v1alpha1.AnnotationE2BAutoResume] == "true"
	e.private = v1alpha1.IsE2BPrivate(sandbox)
	return e
}

// route is the entry as it is returned at a time.
func (e *entry) route(now time.Time) Route {
	route := Route{
		ID: e.id, Namespace: e.id[:e.split], Name: e.name, Claim: e.id[e.split+2:], UID: e.uid, State: e.state,
		AutoResume: e.autoResume, Private: e.private,
	}
	if e.shutdown != 0 && now.Unix() >= e.shutdown {
		route.State = Other
	}
	return route
}

// winsOver reports whether an id means this entry rather than another one with the same id.
func (e *entry) winsOver(other *entry) bool {
	return other == nil || e.uid == other.uid || e.precedence.Over(other.precedence)
}

// GetObjectKind implements runtime.Object.
func (e *entry) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (e *entry) DeepCopyObject() runtime.Object {
	copied := *e
	return &copied
}

// GetObjectMeta implements metav1.ObjectMetaAccessor with what the reflector looks at.
func (e *entry) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{
		Namespace: e.id[:e.split], Name: e.name, UID: e.uid, ResourceVersion: strconv.FormatUint(e.precedence.Version, 10),
	}
}
