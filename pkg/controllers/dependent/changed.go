// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package dependent

import "sigs.k8s.io/controller-runtime/pkg/event"

// Changed says whether an update is of what an owner wants. It also is where a cache
// shows one that was deleted and made anew as an update: both are of generation 1.
func Changed(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
}
