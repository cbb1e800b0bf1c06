// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/warning"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// warn warns the client of a claim of what it does not get.
func warn(ctx context.Context, claim *v1alpha1.SandboxClaim, n notDone) {
	if n.heldBack.Len() > 0 {
		warnOfHeldBack(ctx, sets.List(n.heldBack))
	}
	if n.withoutRuntime.Len() > 0 {
		warnOfRuntimes(ctx, claim, sets.List(n.withoutRuntime))
	}
}

// maxWarned is how many fields one warning names.
const maxWarned = 5

// warnOfHeldBack warns the client of which of its labels and annotations are not on all of
// the pods.
func warnOfHeldBack(ctx context.Context, fields []string) {
	named := strings.Join(fields[:min(len(fields), maxWarned)], ", ")
	if more := len(fields) - maxWarned; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	warning.AddWarning(ctx, "", named+": on the sandboxes, but not on all of their pods: "+
		"held back by a podMetadataPolicy, by the default of the installation, or because the pod template says otherwise")
}

// warnOfRuntimes warns the client that its envVars are not delivered in the sandboxes of some
// pools, which are named as plan.Marks names them.
func warnOfRuntimes(ctx context.Context, claim *v1alpha1.SandboxClaim, pools []string) {
	if len(pools) == 0 || len(claim.Spec.EnvVars) == 0 {
		return
	}
	named := strings.Join(pools[:min(len(pools), maxWarned)], ", ")
	if more := len(pools) - maxWarned; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	warning.AddWarning(ctx, "", named+" has no agent-runtime: envVars are not delivered")
}
