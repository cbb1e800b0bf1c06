// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ownedobject

import "sigs.k8s.io/controller-runtime/pkg/event"

// Changed reports whether an update of an owner may change what it wants. It also may
// where a cache shows an owner that was deleted and created again as an update: both are
// of generation 1.
func Changed(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
}
