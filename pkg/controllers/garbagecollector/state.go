// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// watchLag gives the caches time to show what the server has already. Not everything
// they show brings an event here, so the object is looked at again.
const watchLag = 50 * time.Millisecond

// ownerState is what has become of an owner.
type ownerState int

const (
	// present: the dependents stay. So they do while the owner is being deleted and has
	// the finalizer of another controller: they follow when it is gone.
	present ownerState = iota
	// absent: the dependents are deleted. So they are when the owner is being deleted in
	// the foreground.
	absent
	// orphaning: the owner is being deleted, and the dependents stay.
	orphaning
)

func stateOf(owner client.Object) ownerState {
	switch {
	case !waitsForDependents(owner):
		return present
	case controllerutil.ContainsFinalizer(owner, metav1.FinalizerOrphanDependents):
		return orphaning
	default:
		return absent
	}
}

// waitsForDependents reports whether an object is being deleted, in the foreground or as
// an orphaning owner.
func waitsForDependents(object client.Object) bool {
	return object.GetDeletionTimestamp() != nil && slices.ContainsFunc(object.GetFinalizers(), isCascading)
}

// isCascading reports whether a finalizer is one that the API server puts on what is
// deleted with --cascade=foreground or =orphan.
func isCascading(finalizer string) bool {
	return finalizer == metav1.FinalizerDeleteDependents || finalizer == metav1.FinalizerOrphanDependents
}
