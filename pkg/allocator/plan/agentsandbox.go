// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// agentSandbox is the feature of claims of agent-sandbox. It says whose a sandbox is in the words of
// that API, and gives the claim the condition Ready of its sandbox, or says why it has none.
type agentSandbox struct{}

var (
	_ progresser = agentSandbox{}
	_ marker     = agentSandbox{}
	_ reporter   = agentSandbox{}
)

func (agentSandbox) applies(s *State, _ []Candidate) bool { return v1alpha1.OfAgentSandbox(s.Claim) }

// progress lets a sandbox count that failed: it is the claim's as it is, which its conditions say.
func (agentSandbox) progress(_ *Assessment, _ *v1alpha1.Sandbox, before preparation) preparation {
	if before.progress == Failed {
		return preparation{progress: Done}
	}
	return before
}

// mark writes whose the sandbox is, where it came from, and which pod is its own.
func (agentSandbox) mark(claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox, launch string) {
	sb.Labels[v1alpha1.AgentLabelClaimUID] = string(claim.UID)
	sb.Labels[v1alpha1.AgentLabelCreatedBy] = claims.CreatedBy(claim)
	sb.Labels[v1alpha1.AgentLabelLaunchType] = launch
	sb.Annotations[v1alpha1.AnnotationAPI] = v1alpha1.AgentsGroup
	sb.Annotations[v1alpha1.AgentAnnotationPodName] = sb.Name
	if trace := claims.TraceContext(claim.Annotations[v1alpha1.AgentAnnotationTraceContext]); trace != "" {
		sb.Annotations[v1alpha1.AgentAnnotationTraceContext] = trace
	}
}

// refusedLook is when a claim that asks for what it cannot have is looked at again, beside
// every change of it and of sets: its template may have been changed.
const refusedLook = time.Minute

// report writes on the claim which sandbox it has after a plan, and how that is, or why there is
// none.
func (agentSandbox) report(a *Assessment, p *Plan) {
	if !IsExpired(a.claim, a.State.Now) {
		reportAgentSandbox(a, p)
	}
	noteFirstReady(a.claim, a.State.Claim, a.State.Now)
}

func reportAgentSandbox(a *Assessment, p *Plan) {
	sb := agentSandboxOf(a, p)
	nameAgentSandbox(a, sb)
	isNew := sb != nil && (slices.Contains(p.Bound, sb) || slices.Contains(p.Made, sb))
	if sb == nil || isNew {
		// What was wrong with the metadata of another is no more; this one has what the claim says.
		meta.RemoveStatusCondition(&a.claim.Status.Conditions, v1alpha1.ClaimConditionMetadataSynced)
	}
	if isNew {
		applyClaimDefaults(a, sb)
	}
	ready := claims.AgentReady(a.claim, sb)
	if sb == nil {
		ready.Reason, ready.Message = whyNoSandbox(a, p)
		if look := a.State.Now.Add(refusedLook); a.State.Refused != nil && look.Before(p.Until) {
			p.Until = look
		}
	} else {
		nameAgentPool(a, sb)
	}
	if look := a.State.Now.Add(refusedLook); a.State.Making.Name != NameFree && look.Before(p.Until) {
		p.Until = look
	}
	// What other rules have said of it in this plan is no transition.
	meta.RemoveStatusCondition(&a.claim.Status.Conditions, v1alpha1.ClaimConditionReady)
	if before := meta.FindStatusCondition(a.State.Claim.Status.Conditions, v1alpha1.ClaimConditionReady); before != nil && !a.State.New {
		meta.SetStatusCondition(&a.claim.Status.Conditions, *before)
	}
	setAgentReady(a.claim, ready, a.State.Now)
}

// setAgentReady sets the condition Ready of a claim. The time of its transition is not in the
// future.
func setAgentReady(claim *v1alpha1.SandboxClaim, ready metav1.Condition, now time.Time) {
	if ready.LastTransitionTime.IsZero() || ready.LastTransitionTime.After(now) {
		ready.LastTransitionTime = metav1.NewTime(now)
	}
	meta.SetStatusCondition(&claim.Status.Conditions, ready)
}

// setReadyOfHeld sets the condition Ready of the next state of a claim to that of its sandbox, if that
// is among those that it holds.
func setReadyOfHeld(next, claim *v1alpha1.SandboxClaim, held []*v1alpha1.Sandbox, now time.Time) {
	if !claims.IsRebound(claim) || v1alpha1.HasExpired(claim) {
		return
	}
	own := slices.IndexFunc(held, func(sb *v1alpha1.Sandbox) bool {
		return !HasLostSandbox(claim, sb) && sb.Name == claims.AgentSandbox(claim)
	})
	if own >= 0 {
		setAgentReady(next, claims.AgentReady(next, held[own]), now)
	}
}

// agentSandboxOf is the sandbox that the claim has after a plan; nil if it has none. Clients
// that write statuses can leave it with more than one: then it is the one that counts, or
// else one that is starting, so that the next plan says the same.
func agentSandboxOf(a *Assessment, p *Plan) *v1alpha1.Sandbox {
	has := slices.Concat(p.Counted, p.Bound, p.Made)
	known := map[string]bool{}
	for _, sb := range slices.Concat(has, p.Released) {
		known[sb.Name] = true
	}
	for _, sb := range a.State.Held {
		if sb.DeletionTimestamp == nil && !known[sb.Name] && !v1alpha1.IsReservedFailed(sb) {
			has = append(has, sb)
		}
	}
	listed := ""
	if all := a.claim.Status.Sandboxes; len(all) > 0 {
		listed = all[0].Name
	}
	for _, is := range []func(*v1alpha1.Sandbox) bool{
		func(sb *v1alpha1.Sandbox) bool { return sb.Name == listed },
		IsStarting,
		func(*v1alpha1.Sandbox) bool { return true },
	} {
		if i := slices.IndexFunc(has, is); i >= 0 {
			return has[i]
		}
	}
	return nil
}

// nameAgentSandbox names the sandbox on the claim.
func nameAgentSandbox(a *Assessment, sb *v1alpha1.Sandbox) {
	name := ""
	if sb != nil {
		name = sb.Name
	}
	if a.claim.Annotations[v1alpha1.AgentAnnotationSandboxName] == name {
		return
	}
	a.claim.Annotations = maps.Clone(a.claim.Annotations)
	if name == "" {
		delete(a.claim.Annotations, v1alpha1.AgentAnnotationSandboxName)
		return
	}
	a.claim.Annotations[v1alpha1.AgentAnnotationSandboxName] = name
}

// nameAgentPool writes which pool the sandbox came from on a claim that only names a template:
// clients read it there, and drop the older fields when they write.
func nameAgentPool(a *Assessment, sb *v1alpha1.Sandbox) {
	pool := sb.Labels[v1alpha1.LabelSandboxPool]
	if a.claim.Spec.WarmPoolRef != nil || pool == "" || len(a.State.Eligible.Pools) == 0 {
		return
	}
	a.claim.Spec.WarmPoolRef = &v1alpha1.SandboxClaimWarmPoolRef{Name: pool}
}

// applyClaimDefaults copies claimDefaults of the pool of a newly bound sandbox to the claim, to
// fields that the claim does not set.
func applyClaimDefaults(a *Assessment, sb *v1alpha1.Sandbox) {
	if a.claim.Spec.Lifecycle != nil {
		return
	}
	pool := sb.Labels[v1alpha1.LabelSandboxPool]
	isOwn := func(set *v1alpha1.SandboxSet) bool { return set != nil && set.Name == pool }
	set := a.State.Eligible.MakeFrom
	if !isOwn(set) {
		i := slices.IndexFunc(a.State.Eligible.Pools, isOwn)
		if i < 0 {
			return
		}
		set = a.State.Eligible.Pools[i]
	}
	if defaults := set.Spec.ClaimDefaults; defaults != nil {
		a.claim.Spec.Lifecycle = defaults.Lifecycle.DeepCopy()
	}
}

// whyNoSandbox is why the claim has no sandbox.
func whyNoSandbox(a *Assessment, p *Plan) (reason, message string) {
	problem := a.State.Eligible.Problem
	switch {
	case a.State.Refused != nil:
		return refusedReason(a.State.Refused)
	case problem != nil && problem.Missing && problem.Reason == v1alpha1.ReasonSandboxSetNotFound:
		return claims.AgentReasonWarmPoolNotFound, claims.AgentWarmPoolNotFound(problem.Name)
	case problem != nil && problem.Missing:
		return claims.AgentReasonTemplateNotFound, claims.AgentTemplateNotFound(problem.Name)
	case problem != nil:
		return claims.AgentReasonError, claims.AgentError(problem.Message)
	case errors.Is(p.Broken, podtemplate.ErrTemplateNotFound):
		return claims.AgentReasonTemplateNotFound, claims.AgentTemplateNotFound(templateNameOf(a))
	case p.Broken != nil:
		return claims.AgentReasonError, claims.AgentError(p.Broken.Error())
	case a.State.Making.Denied != nil:
		return claims.AgentReasonError, claims.AgentError(a.State.Making.Denied.Error())
	case a.State.Making.Name == NameLeaving:
		return v1alpha1.ReasonSandboxMissing, v1alpha1.SandboxMissingMessage +
			"; it is made when the one named " + a.claim.Name + ", which is being deleted, is gone"
	case a.State.Making.Name == NameTaken:
		return claims.AgentReasonError, claims.AgentError("a Sandbox named " + a.claim.Name +
			" exists that is not this claim's; delete it, or create the claim under another name")
	}
	return v1alpha1.ReasonSandboxMissing, v1alpha1.SandboxMissingMessage
}

// templateNameOf is the template that fresh sandboxes of the claim are made from.
func templateNameOf(a *Assessment) string {
	if a.State.Eligible.MakeFrom != nil {
		return v1alpha1.SandboxTemplateOf(a.State.Eligible.MakeFrom)
	}
	return cmp.Or(a.State.Eligible.MakeFromTemplate, a.State.Eligible.Name)
}

// refusedReason is a refusal in the words of agent-sandbox.
func refusedReason(refused *RefusedError) (reason, message string) {
	if refused.Conflict {
		return claims.AgentReasonError, claims.AgentError(refused.Message)
	}
	switch refused.Reason {
	case v1alpha1.ReasonInvalidMetadata, v1alpha1.ReasonEnvVarsInjectionRejected:
		return refused.Reason, refused.Message
	case v1alpha1.ReasonVolumeClaimTemplatesRejected:
		return claims.AgentReasonVolumeClaimTemplates, refused.Message
	}
	return claims.AgentReasonError, claims.AgentError(refused.Message)
}
