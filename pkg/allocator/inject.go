// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

var (
	envPath     = field.NewPath("spec", "env")
	volumesPath = field.NewPath("spec", "volumeClaimTemplates")
)

// inject puts what a claim adds into the model of its fresh sandboxes, as far as the
// template lets it: the SandboxTemplate that the claim, or the set that makes them,
// names first. A set with a pod template of its own names none, and lets nothing in.
// The model is changed.
func inject(
	ctx context.Context, claim *v1alpha1.SandboxClaim, s *supply, model *v1alpha1.Sandbox, lookup podtemplate.Lookup,
) (*RefusedError, error) {
	if !v1alpha1.NeedsFresh(&claim.Spec) {
		return nil, nil
	}
	policies, err := policies(ctx, claim, s, lookup)
	if err != nil {
		return nil, err
	}
	template, refused, err := podtemplate.InjectEnv(model.Spec.Template, claim.Spec.Env, policies.EnvVarsInjectionPolicy, envPath)
	if err != nil {
		return nil, malformed(err)
	}
	if len(refused) > 0 {
		return &RefusedError{Reason: v1alpha1.ReasonEnvVarsInjectionRejected, Errors: refused}, nil
	}
	volumes, refused, err := podtemplate.InjectVolumes(template,
		model.Spec.VolumeClaimTemplates, claim.Spec.VolumeClaimTemplates, policies.VolumeClaimTemplatesPolicy, volumesPath)
	if err != nil {
		return nil, malformed(err)
	}
	if most := validation.MaxVolumeClaimTemplates; len(volumes) > most {
		refused = field.ErrorList{field.TooMany(volumesPath, len(volumes), most)}
	}
	if len(refused) == 0 {
		refused = validation.ValidateMounted(template, claim.Spec.VolumeClaimTemplates, volumesPath)
	}
	if len(refused) > 0 {
		return &RefusedError{Reason: v1alpha1.ReasonVolumeClaimTemplatesRejected, Errors: refused}, nil
	}
	model.Spec.Template, model.Spec.VolumeClaimTemplates = template, volumes
	return nil, nil
}

// policies returns the spec of the template whose policies hold for what is made of
// a supply; an empty one where there is none. They are those of the template that a
// claim asks for also where a set with a pod template of its own counts as that.
func policies(
	ctx context.Context, claim *v1alpha1.SandboxClaim, s *supply, lookup podtemplate.Lookup,
) (*v1alpha1.SandboxTemplateSpec, error) {
	name, inline := s.template, false
	if s.set != nil {
		name, inline = v1alpha1.SandboxTemplateOf(s.set), s.set.Spec.Template != nil
	}
	if asked, byRef := v1alpha1.AskedOf(claim); byRef {
		name = asked
	}
	if name == "" {
		return &v1alpha1.SandboxTemplateSpec{}, nil
	}
	template, err := lookup.SandboxTemplate(ctx, claim.Namespace, name)
	switch {
	case err != nil:
		return nil, err
	case template == nil && inline:
		return &v1alpha1.SandboxTemplateSpec{}, nil
	case template == nil:
		return nil, fmt.Errorf("SandboxTemplate %s/%s: %w", claim.Namespace, name, podtemplate.ErrTemplateNotFound)
	}
	return &template.Spec, nil
}

// refusal says why the template does not take what a claim adds to its sandboxes,
// if more of them have to be made.
func (j *job) refusal(ctx context.Context, d *draft) (*RefusedError, error) {
	if !v1alpha1.NeedsFresh(&j.claim.Spec) || !d.supply.canMake() ||
		int(replicas(d.claim)-d.claim.Status.ClaimedReplicas) <= len(j.fresh) {
		return nil, nil
	}
	r, err := j.a.newRecipeSurely(ctx, j.claim, &d.supply)
	if err != nil {
		return nil, err
	}
	j.recipe = r
	return r.refused, nil
}

// toldRefusals is how many of the reasons for a refusal the status of a claim has.
const toldRefusals = 3

// message tells the refusal in the words of a claim's status.
func (e *RefusedError) message() string {
	told := make([]string, 0, toldRefusals)
	for _, err := range e.Errors[:min(len(e.Errors), toldRefusals)] {
		told = append(told, err.Error())
	}
	why := strings.Join(told, "; ")
	if more := len(e.Errors) - len(told); more > 0 {
		why += fmt.Sprintf("; and %d more", more)
	}
	if e.Reason == v1alpha1.ReasonVolumeClaimTemplatesRejected {
		return v1alpha1.VolumeClaimTemplatesRejectedMessage(why)
	}
	return v1alpha1.EnvVarsInjectionRejectedMessage(why)
}

// reject ends a claim that asks for what its template does not take, with what it has.
func reject(claim *v1alpha1.SandboxClaim, now time.Time, refused *RefusedError) {
	message := refused.message()
	end(claim, now, message)
	condition(claim, now, v1alpha1.ClaimConditionCompleted, metav1.ConditionTrue, refused.Reason, message)
	condition(claim, now, v1alpha1.ClaimConditionReady, metav1.ConditionFalse, refused.Reason, message)
}
