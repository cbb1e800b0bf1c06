// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ownedobject

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/pkg/controllers/writepace"
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

// writeDelay returns how long the next write of an object must wait.
func writeDelay(pacer *writepace.Pacer, owner client.Object, object client.ObjectKey) time.Duration {
	taken, refused := paceKeys(owner, object)
	return max(pacer.Delay(taken), pacer.Delay(refused))
}

// record records a write of an object, which ended with an error or nil. It returns the pause
// that follows, and reports whether the server took the same write before, a short while ago.
func record(pacer *writepace.Pacer, owner, object client.Object, err error) (pause time.Duration, repeated bool) {
	taken, refused := paceKeys(owner, client.ObjectKeyFromObject(object))
	if err != nil {
		pause, _ = pacer.RecordKey(refused, object)
		return pause, false
	}
	return pacer.RecordKey(taken, object)
}

// forget forgets an object that is no longer wanted.
func forget(pacer *writepace.Pacer, owner client.Object, object client.ObjectKey) {
	taken, refused := paceKeys(owner, object)
	pacer.Forget(taken)
	pacer.Forget(refused)
}
