// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// accepted remembers what the API said of the pods of a revision when the
// SandboxTemplate that holds it was made, until that is in the set's status. The
// API has asked the cluster then, which nobody does again.
type accepted struct {
	mu   sync.Mutex
	sets map[types.NamespacedName]answer
}

type answer struct {
	uid      types.UID
	revision string
	// doubts are the warnings that came with the answer; none says that all is well.
	doubts []string
}

func newAccepted() *accepted { return &accepted{sets: map[types.NamespacedName]answer{}} }

// answered enters what the API said.
func (a *accepted) answered(set *v1alpha1.SandboxSet, revision string, doubts []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sets[client.ObjectKeyFromObject(set)] = answer{set.UID, revision, doubts}
}

// of returns what the API said of a revision, or nil.
func (a *accepted) of(set *v1alpha1.SandboxSet, revision string) *answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.sets[client.ObjectKeyFromObject(set)]
	if !ok || known.uid != set.UID || known.revision != revision {
		return nil
	}
	return &known
}

// forget drops what is known about a set that is gone.
func (a *accepted) forget(set types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sets, set)
}

// setAccepted tells in the status whether the cluster takes pods of the revision:
// surely, once one is available, whatever comes later. What was told of the same
// revision before stays, because a restart forgets it otherwise; and it stays as it
// is, with the generation that it is about, while the set serves on at that revision
// because what it asks for now cannot be used, or not be held yet.
func (o *observation) setAccepted(status *v1alpha1.SandboxSetStatus, updatedAvailable int) {
	if !o.cluster || o.unresolved != nil || o.materializeErr != nil {
		return
	}
	condition := metav1.Condition{
		Type:               v1alpha1.SetConditionTemplateAccepted,
		Status:             metav1.ConditionTrue,
		Reason:             v1alpha1.ReasonAccepted,
		ObservedGeneration: o.set.Generation,
		LastTransitionTime: metav1.NewTime(o.now),
	}
	told := meta.FindStatusCondition(o.set.Status.Conditions, v1alpha1.SetConditionTemplateAccepted)
	if o.set.Status.UpdateRevision != o.revision {
		told = nil
	}
	switch {
	case updatedAvailable > 0,
		told != nil && told.Status == metav1.ConditionTrue,
		o.said != nil && len(o.said.doubts) == 0:
	case o.said != nil:
		condition.Status, condition.Reason = metav1.ConditionUnknown, v1alpha1.ReasonWarned
		condition.Message = cutMessage(strings.Join(o.said.doubts, "; "))
	case told != nil:
		condition.Status, condition.Reason, condition.Message = told.Status, told.Reason, told.Message
	default:
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.SetConditionTemplateAccepted)
		return
	}
	meta.SetStatusCondition(&status.Conditions, condition)
}
