// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// PodMetadataOf returns which labels and annotations of claims reach the pods of a set:
// what the set says, else what the SandboxTemplate says that it names. Where that is gone
// none do, for it may have held them back.
func (t *Templates) PodMetadataOf(ctx context.Context, set *v1alpha1.SandboxSet, lookup podtemplate.Lookup) (*v1alpha1.PodMetadataPolicy, error) {
	if set.Spec.PodMetadataPolicy != nil {
		return set.Spec.PodMetadataPolicy, nil
	}
	return t.PodMetadataOfTemplate(ctx, set.Namespace, v1alpha1.SandboxTemplateOf(set), lookup)
}

// PodMetadataOfTemplate does so for the pods of a SandboxTemplate. No name is none.
func (t *Templates) PodMetadataOfTemplate(ctx context.Context, namespace, name string, lookup podtemplate.Lookup) (*v1alpha1.PodMetadataPolicy, error) {
	if name == "" {
		return t.PodMetadata, nil
	}
	switch template, err := lookup.SandboxTemplate(ctx, namespace, name); {
	case err != nil:
		return nil, err
	case template == nil:
		return &v1alpha1.PodMetadataPolicy{}, nil
	case template.Spec.PodMetadataPolicy != nil:
		return template.Spec.PodMetadataPolicy, nil
	}
	return t.PodMetadata, nil
}

// BringsPodMetadata reports whether a claim has anything for the metadata of pods.
func BringsPodMetadata(claim *v1alpha1.SandboxClaim) bool {
	additional := v1alpha1.AdditionalPodMetadataOf(&claim.Spec)
	return len(claim.Spec.Labels)+len(claim.Spec.Annotations)+len(additional.Labels)+len(additional.Annotations) > 0
}

// BringsAdditional reports whether a claim has metadata that is for its pods alone, which
// no pod template may set to other values.
func BringsAdditional(claim *v1alpha1.SandboxClaim) bool {
	additional := v1alpha1.AdditionalPodMetadataOf(&claim.Spec)
	return len(additional.Labels)+len(additional.Annotations) > 0
}

// metadataRefusal is why a pod template does not take the additionalPodMetadata of a claim;
// nil if it does.
func metadataRefusal(claim *v1alpha1.SandboxClaim, template *runtime.RawExtension) *plan.RefusedError {
	if !BringsAdditional(claim) {
		return nil
	}
	marks, err := plan.NewMarks(claim)
	if err != nil {
		return nil //nolint:nilerr // making sandboxes meets it as well
	}
	return marks.Refuses(template)
}

// AgentMetadataRefusal is why the additionalPodMetadata of a claim of agent-sandbox is none that
// it may have, whatever its template says; nil if it may.
func (t *Templates) AgentMetadataRefusal(claim *v1alpha1.SandboxClaim) *plan.RefusedError {
	if !v1alpha1.OfAgentSandbox(claim) || !BringsAdditional(claim) {
		return nil
	}
	errs := validation.ValidateAgentPodMetadata(&claim.Spec, t.LabelDomains)
	if len(errs) == 0 {
		return nil
	}
	return refusal(v1alpha1.ReasonInvalidMetadata, errs)
}

// podMetadataFor returns which of the claim's labels and annotations reach the pod of a
// candidate. Those of a set that is gone serve no claim, so none do.
func (p *Preparer) podMetadataFor(ctx context.Context, from poolindex.Candidate) (*v1alpha1.PodMetadataPolicy, error) {
	set := p.Stock.Sets.Set(from.Pool.Namespace, from.Pool.Name)
	if set == nil || string(set.UID) != from.Pool.UID {
		return &v1alpha1.PodMetadataPolicy{}, nil
	}
	return p.Templates.PodMetadataOf(ctx, set, p.Templates.late)
}

// MetadataRefusal is why additionalPodMetadata goes with none of the pod templates of the sets that
// may serve a claim; nil if it goes with one, there is none, or that is not known.
func (t *Templates) MetadataRefusal(ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, lookup podtemplate.Lookup) *plan.RefusedError {
	var first *plan.RefusedError
	for _, set := range e.Pools {
		resolved, err := t.cache.ResolveSet(ctx, set, lookup)
		if err != nil {
			return nil //nolint:nilerr // it is not known whether they take it
		}
		refused := metadataRefusal(claim, resolved.Template)
		if refused == nil {
			return nil
		}
		if first == nil {
			first = refused
		}
	}
	return first
}
