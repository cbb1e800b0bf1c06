// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

var (
	replicasPath = field.NewPath("spec", "replicas")
	envPath      = field.NewPath("spec", "env")
	volumesPath  = field.NewPath("spec", "volumeClaimTemplates")
)

// inject puts what a claim adds into the model of its fresh sandboxes, as far as the
// template lets it: the SandboxTemplate that the claim, or the set that makes them,
// names first. A set with a pod template of its own names none, and lets nothing in.
// The model is changed.
func inject(
	ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, model *v1alpha1.Sandbox, lookup podtemplate.Lookup,
) (*plan.RefusedError, error) {
	if !v1alpha1.NeedsFresh(&claim.Spec) {
		return nil, nil
	}
	policies, err := policiesFor(ctx, claim, e, lookup)
	if err != nil {
		return nil, err
	}
	if policies == nil {
		return withoutPolicy(claim, e), nil
	}
	template, refused, err := podtemplate.InjectEnv(model.Spec.Template, claim.Spec.Env, policies, envPath)
	if err != nil {
		return nil, malformed(err)
	}
	if len(refused) > 0 {
		why := refusal(v1alpha1.ReasonEnvVarsInjectionRejected, refused)
		// The template may come to have the containers: clients of agent-sandbox wait for that.
		why.Conflict = !slices.ContainsFunc(refused, func(e *field.Error) bool { return e.Type != field.ErrorTypeNotFound })
		return why, nil
	}
	volumes, refused, err := injectVolumes(claim, template, model.Spec.VolumeClaimTemplates, policies)
	if err != nil {
		return nil, malformed(err)
	}
	if len(refused) > 0 {
		return refusal(v1alpha1.ReasonVolumeClaimTemplatesRejected, refused), nil
	}
	model.Spec.Template, model.Spec.VolumeClaimTemplates = template, volumes
	return nil, nil
}

// injectVolumes returns the volume claim templates in have, which are those of the template,
// with those of a claim. A claim of agent-sandbox is stored before its volumes are validated, so
// they are validated here, and it may bring volumes that no container mounts.
func injectVolumes(
	claim *v1alpha1.SandboxClaim, template *runtime.RawExtension, have []runtime.RawExtension, policies *v1alpha1.SandboxTemplateSpec,
) ([]runtime.RawExtension, field.ErrorList, error) {
	add := claim.Spec.VolumeClaimTemplates
	volumes, refused, err := podtemplate.InjectVolumes(template, have, add, policies, volumesPath)
	switch most := validation.MaxVolumeClaimTemplates; {
	case err != nil || len(refused) > 0:
		return nil, refused, err
	case len(volumes) > most:
		return nil, field.ErrorList{field.TooMany(volumesPath, len(volumes), most)}, nil
	case v1alpha1.OfAgentSandbox(claim):
		return volumes, validation.ValidateVolumeClaimTemplates(add, volumesPath), nil
	}
	return volumes, validation.ValidateMounted(template, add, volumesPath), nil
}

// policiesFor returns the spec of the template whose policies hold for what is made of
// this; nil where there is none. They are those of the template that a
// claim asks for also where a set with a pod template of its own counts as that.
func policiesFor(
	ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, lookup podtemplate.Lookup,
) (*v1alpha1.SandboxTemplateSpec, error) {
	name, inline := e.MakeFromTemplate, false
	if e.MakeFrom != nil {
		name, inline = v1alpha1.SandboxTemplateOf(e.MakeFrom), e.MakeFrom.Spec.Template != nil
	}
	if asked, byRef := v1alpha1.AskedOf(claim); byRef {
		name = asked
	}
	if name == "" {
		return nil, nil
	}
	template, err := lookup.SandboxTemplate(ctx, claim.Namespace, name)
	switch {
	case err != nil:
		return nil, err
	case template == nil && inline:
		return nil, nil
	case template == nil:
		return nil, fmt.Errorf("SandboxTemplate %s/%s: %w", claim.Namespace, name, podtemplate.ErrTemplateNotFound)
	}
	return &template.Spec, nil
}

// maxRefusals is how many of the reasons for a refusal the status of a claim has.
const maxRefusals = 3

// refusal says, in the words of a claim's status, that the template does not take what the claim adds.
func refusal(reason string, errs field.ErrorList) *plan.RefusedError {
	reasons := make([]string, 0, maxRefusals)
	for _, err := range errs[:min(len(errs), maxRefusals)] {
		reasons = append(reasons, err.Error())
	}
	why := strings.Join(reasons, "; ")
	if more := len(errs) - len(reasons); more > 0 {
		why += fmt.Sprintf("; and %d more", more)
	}
	message := v1alpha1.EnvVarsInjectionRejectedMessage(why)
	switch reason {
	case v1alpha1.ReasonInvalidMetadata:
		message = v1alpha1.InvalidMetadataMessage(why)
	case v1alpha1.ReasonVolumeClaimTemplatesRejected:
		message = v1alpha1.VolumeClaimTemplatesRejectedMessage(why)
	case v1alpha1.ReasonInplaceUpdateRejected:
		message = v1alpha1.InplaceUpdateRejectedMessage(why)
	}
	return &plan.RefusedError{Reason: reason, Message: message, Errors: errs}
}

// withoutPolicy refuses what a claim adds where no SandboxTemplate could let it. It says
// where the policy would have to be: the set has no such field.
func withoutPolicy(claim *v1alpha1.SandboxClaim, e *claims.Eligible) *plan.RefusedError {
	set := "the set"
	if e.MakeFrom != nil {
		set = "SandboxSet " + e.MakeFrom.Name
	}
	refuse := func(reason, policy string, path *field.Path) *plan.RefusedError {
		return refusal(reason, field.ErrorList{field.Forbidden(path, fmt.Sprintf("not allowed by the template policy: "+
			"%s refers to no SandboxTemplate, which alone can have one: it takes a SandboxTemplate with %s, and the set's templateRef to it",
			set, policy))})
	}
	if len(claim.Spec.Env) > 0 {
		return refuse(v1alpha1.ReasonEnvVarsInjectionRejected, "envVarsInjectionPolicy", envPath)
	}
	return refuse(v1alpha1.ReasonVolumeClaimTemplatesRejected, "volumeClaimTemplatesPolicy", volumesPath)
}
