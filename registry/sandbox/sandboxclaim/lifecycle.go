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

// lifecycleWarnings warns of a lifecycle that is over already, and of one that nothing comes of
// because ttlAfterCompleted deletes the claim first.
func lifecycleWarnings(spec, old *v1alpha1.SandboxClaimSpec, path *field.Path, now time.Time) []string {
	if spec.Lifecycle == nil {
		return nil
	}
	end, before := spec.Lifecycle.ShutdownTime, (&v1alpha1.SandboxClaimLifecycle{}).ShutdownTime
	if old.Lifecycle != nil {
		before = old.Lifecycle.ShutdownTime
	}
	ttl := v1alpha1.TTLAfterCompletedOf(spec)
	if end.Equal(before) && old.Lifecycle != nil && ttl == v1alpha1.TTLAfterCompletedOf(old) {
		return nil
	}
	warnings := base.PastTimeWarning(path.Child("lifecycle", "shutdownTime"), end, now, "the claim ends at once")
	if ttl >= 0 && (end == nil || end.After(now.Add(ttl))) {
		warnings = append(warnings, fmt.Sprintf(
			"%s: the claim is deleted %s after it is Completed, and if it has not ended by then, nothing comes of its lifecycle; -1s keeps it",
			path.Child("ttlAfterCompleted"), ttl))
	}
	return warnings
}
