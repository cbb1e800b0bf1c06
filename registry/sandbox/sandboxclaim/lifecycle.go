// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// lifecycleWarnings warns of a lifecycle that is over already, and of one that nothing may
// come of because ttlAfterCompleted deletes the claim first.
func lifecycleWarnings(spec, old *v1alpha1.SandboxClaimSpec, path *field.Path, now time.Time) []string {
	had := old.Lifecycle
	if had == nil {
		had = &v1alpha1.SandboxClaimLifecycle{}
	}
	var warnings []string
	end, ttl := spec.Lifecycle.ShutdownTime, v1alpha1.TTLAfterCompletedOf(spec)
	moved := !end.Equal(had.ShutdownTime)
	if moved {
		warnings = base.PastTimeWarning(path.Child("lifecycle", "shutdownTime"), end, now, "the claim ends at once")
	}
	isNew := moved || old.Lifecycle == nil || ttl != v1alpha1.TTLAfterCompletedOf(old)
	if isNew && ttl >= 0 && (end == nil || end.After(now.Add(ttl))) {
		warnings = append(warnings, fmt.Sprintf(
			"%s: the claim is deleted %s after it is Completed; if its lifecycle has not ended by then, it never does. -1s keeps the claim",
			path.Child("ttlAfterCompleted"), ttl))
	}
	return warnings
}
