// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ownedobject

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// paceKeys are what the Pacer knows an object by: one for the writes that the server took, and
// one for the others. Another state of the owner, which may want something else, is written
// without a delay.
func paceKeys(owner client.Object, object client.ObjectKey) (taken, refused types.NamespacedName) {
	key := func(what string) types.NamespacedName {
		return types.NamespacedName{
			Namespace: object.Namespace,
			Name:      fmt.Sprintf("%s of %s at %d, %s", object.Name, owner.GetUID(), owner.GetGeneration(), what),
		}
	}
	return key("taken"), key("refused")
}

// delay returns how long the next write of an object must wait.
func (r *Reconciler[T]) delay(owner client.Object, object client.ObjectKey) time.Duration {
	taken, refused := paceKeys(owner, object)
	return max(r.Pacer.Delay(taken), r.Pacer.Delay(refused))
}

// record records a write of an object, which ended with an error or nil. It returns the pause
// that follows, and reports whether the server took the same write before, a short while ago.
func (r *Reconciler[T]) record(owner client.Object, object T, err error) (pause time.Duration, repeated bool) {
	taken, refused := paceKeys(owner, client.ObjectKeyFromObject(object))
	if err != nil {
		pause, _ = r.Pacer.RecordKey(refused, object)
		return pause, false
	}
	return r.Pacer.RecordKey(taken, object)
}

// forget forgets an object that is no longer wanted.
func (r *Reconciler[T]) forget(owner client.Object, object client.ObjectKey) {
	taken, refused := paceKeys(owner, object)
	r.Pacer.Forget(taken)
	r.Pacer.Forget(refused)
}
