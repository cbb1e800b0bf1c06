// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	rules "github.com/sandlot-io/sandlot/pkg/claims"
)

// lateEdits warns of changes that have no effect because the claim has ended.
func lateEdits(claim, stored *v1alpha1.SandboxClaim) []string {
	path, is, was := field.NewPath("spec"), &claim.Spec, &stored.Spec
	var warnings []string
	warn := func(changed bool, at *field.Path, why string) {
		if changed {
			warnings = append(warnings, fmt.Sprintf("%s: has no effect any more: %s", at, why))
		}
	}
	if stored.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted && !rules.Continuous(stored) {
		const stay = "the claim is Completed, and its sandboxes stay as they are"
		warn(!is.ShutdownTime.Equal(was.ShutdownTime), path.Child("shutdownTime"), stay+"; change spec.shutdownTime of the sandboxes")
		warn(!is.PauseTime.Equal(was.PauseTime), path.Child("pauseTime"), stay+"; change spec.pauseTime of the sandboxes")
		warn(!apiequality.Semantic.DeepEqual(is.InplaceUpdate, was.InplaceUpdate), path.Child("inplaceUpdate"), stay)
		const done = "the claim is Completed"
		warn(!apiequality.Semantic.DeepEqual(is.ClaimTimeout, was.ClaimTimeout), path.Child("claimTimeout"), done)
		warn(!apiequality.Semantic.DeepEqual(is.WaitReadyTimeout, was.WaitReadyTimeout), path.Child("waitReadyTimeout"), done)
		warn(is.ReserveFailedSandbox != was.ReserveFailedSandbox, path.Child("reserveFailedSandbox"), done)
	}
	if is.Lifecycle != nil && v1alpha1.HasExpired(stored) {
		warn(!is.Lifecycle.ShutdownTime.Equal(was.Lifecycle.ShutdownTime), path.Child("lifecycle", "shutdownTime"),
			"the lifecycle of the claim is over, which is final; create another claim")
	}
	return warnings
}
