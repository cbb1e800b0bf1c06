// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// warnOfRuntimes tells the client that its envVars reach nobody in the sandboxes of some
// pools, which are named as plan.Marks names them.
func warnOfRuntimes(ctx context.Context, claim *v1alpha1.SandboxClaim, pools []string) {
	if len(pools) == 0 || len(claim.Spec.EnvVars) == 0 {
		return
	}
	told := strings.Join(pools[:min(len(pools), toldHeldBack)], ", ")
	if more := len(pools) - toldHeldBack; more > 0 {
		told += fmt.Sprintf(" and %d more", more)
	}
	warning.AddWarning(ctx, "", told+" has no agent-runtime: envVars are not delivered")
}

var mountsPath = field.NewPath("spec", "dynamicVolumesMount")

// cannotMount is why a claim gets no more: it has volumes mounted into its sandboxes, which
// an agent-runtime does, and what is offered has none.
func (t *turn) cannotMount(a *plan.Assessment, o *plan.Offer) *RefusedError {
	if !claims.Mounts(a.State.Claim) {
		return nil
	}
	pool := a.WithoutRuntime(o)
	if pool == "" && a.State.New && len(o.Candidates)+len(o.Made) == 0 {
		pool = runtimelessSet(&a.State.Eligible)
	}
	if pool == "" {
		return nil
	}
	message := pool + " has no agent-runtime, which would mount the volumes"
	return &RefusedError{
		Reason: v1alpha1.ReasonMountFailed, Message: message, Errors: field.ErrorList{field.Forbidden(mountsPath, message)},
	}
}

// runtimelessSet names a set of those that may serve a claim, if all of them say themselves
// what their sandboxes are, and none of these has an agent-runtime; "" otherwise.
func runtimelessSet(e *claims.Eligible) string {
	sets := e.Pools
	if e.MakeFrom != nil {
		sets = append(slices.Clip(sets), e.MakeFrom)
	}
	if len(sets) == 0 || e.MakeFromTemplate != "" {
		return ""
	}
	for _, set := range sets {
		if set.Spec.Template == nil || podtemplate.NamesAgentRuntime(set.Spec.Runtimes) || podtemplate.BringsAgentRuntime(set.Spec.Template) {
			return ""
		}
	}
	return "SandboxSet " + sets[0].Name
}
