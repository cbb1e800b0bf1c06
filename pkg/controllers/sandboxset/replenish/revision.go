// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// targetRevision is the revision that the pool of a set should consist of: what its
// spec asks for, or, while what it refers to cannot be used, the last that could.
type targetRevision struct {
	revision string
	// currentRevision is the value for status.currentRevision, see
	// podtemplate.CurrentRevision. For a set with an inline template it may name an older
	// revision, because its sandboxes do not need the SandboxTemplate. It is empty if no
	// SandboxTemplate has held a revision yet.
	currentRevision string
	// setAtRevision is the set as it was at the revision, and resolved its pod template; nil
	// where no sandboxes can be created.
	setAtRevision *v1alpha1.SandboxSet
	resolved      *podtemplate.Resolved
	// chain are the templates that the spec leads to, where it could be used.
	chain []string
	// unusable is why the target is not what the spec asks for.
	unusable *problem
	// holderErr is why the SandboxTemplate could not be created, where that is no
	// fault of the pod template and sandboxes need it.
	holderErr error
	// requeueAfter is after what time to reconcile again even if no event comes; 0 is never.
	requeueAfter time.Duration
}

// problem is why a pool cannot be kept as it should be.
type problem struct{ reason, message string }

func newProblem(reason string, err error) *problem {
	return &problem{reason, report.Truncate(err.Error(), maxMessage)}
}

// revisions finds the revision that the pool of a set should consist of.
type revisions struct {
	lookup       *templates.Lookup
	states       *setStates
	podTemplates *podtemplate.Cache
	holders      *holders
}

// target finds out what the pool should consist of, and creates the SandboxTemplate
// that holds it where there is none. An error means that nothing is known.
func (r *revisions) target(ctx context.Context, set *v1alpha1.SandboxSet) (targetRevision, error) {
	revision, resolved, err := r.resolve(ctx, set)
	if reason := templates.ReasonFor(err); reason != "" {
		return r.targetOfStatus(ctx, set, newProblem(reason, withoutSet(err)))
	}
	if err != nil {
		return targetRevision{}, err
	}
	from, revision, resolved, err := r.withStoredJSON(set, revision, resolved)
	if err != nil {
		return targetRevision{}, err
	}
	t := targetRevision{
		revision: revision, currentRevision: podtemplate.CurrentRevision(from, revision),
		setAtRevision: from, resolved: resolved, chain: resolved.Chain,
	}
	retryAfter, err := r.holders.ensure(ctx, from, revision, resolved)
	switch {
	case err == nil:
		return t, nil
	case set.Spec.Template != nil:
		// Its sandboxes do not need the SandboxTemplate, so no pool should suffer from that.
		t.currentRevision, t.requeueAfter = set.Status.CurrentRevision, cmp.Or(retryAfter, holderRetry)
		return t, nil
	}
	return r.targetWithoutHolder(ctx, set, resolved, retryAfter, err)
}

// withoutSet unwraps an error of ResolveSet, so that it does not name the set. It becomes the
// message of a condition of the set, which is a SandboxWarmPool in the other API.
func withoutSet(err error) error { return cmp.Or(errors.Unwrap(err), err) }

// withStoredJSON looks for a SandboxTemplate of the set that holds an earlier revision and decodes to the
// same as the set, and returns the set, its revision and its resolved template in the text of that
// one (see podtemplate.WithTextOf). It prefers the revision in the status. So a pool is not replaced
// when its template is only formatted differently. Without such a SandboxTemplate it returns its
// arguments.
func (r *revisions) withStoredJSON(
	set *v1alpha1.SandboxSet, revision string, resolved *podtemplate.Resolved,
) (*v1alpha1.SandboxSet, string, *podtemplate.Resolved, error) {
	if revision == set.Status.UpdateRevision {
		return set, revision, resolved, nil
	}
	owned, err := r.holders.indexes.revisionsOf(set)
	if err != nil {
		return nil, "", nil, err
	}
	prefer := func(template *v1alpha1.SandboxTemplate) int {
		switch template.Labels[v1alpha1.LabelTemplateHash] {
		case set.Status.UpdateRevision:
			return 0
		case revision:
			return 1
		}
		return 2
	}
	slices.SortFunc(owned, func(a, b *v1alpha1.SandboxTemplate) int {
		return cmp.Or(cmp.Compare(prefer(a), prefer(b)), byLastUse(b, a))
	})
	for _, template := range owned {
		if !podtemplate.IsRevision(template) || template.DeletionTimestamp != nil {
			continue
		}
		if from, found, same := r.podTemplates.WithTextOf(set, revision, resolved, template); same {
			return from, template.Labels[v1alpha1.LabelTemplateHash], found, nil
		}
	}
	return set, revision, resolved, nil
}

// targetWithoutHolder is the target where the SandboxTemplate for what the spec asks
// for could not be created: what the pool consisted of until now.
func (r *revisions) targetWithoutHolder(
	ctx context.Context, set *v1alpha1.SandboxSet, resolved *podtemplate.Resolved, retryAfter time.Duration, err error,
) (targetRevision, error) {
	var unusable *problem
	switch {
	case errors.Is(err, errNameTaken):
		unusable = newProblem(v1alpha1.ReasonTemplateNameTaken, err)
	case apierrors.IsInvalid(err):
		// No pod of this cluster can be like that, which the API server has asked.
		unusable = newProblem(v1alpha1.ReasonInvalidTemplate, err)
	}
	t, lastErr := r.targetOfStatus(ctx, set, unusable)
	if lastErr != nil {
		return targetRevision{}, errors.Join(err, lastErr)
	}
	switch {
	case unusable != nil:
		t.requeueAfter = retryAfter // no event says that the cluster takes the pod
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		t.chain = resolved.Chain // the set will go as well
	default:
		t.chain, t.holderErr = resolved.Chain, err
	}
	return t, nil
}

// targetOfStatus is the revision that the pool was last to consist of.
func (r *revisions) targetOfStatus(ctx context.Context, set *v1alpha1.SandboxSet, unusable *problem) (targetRevision, error) {
	t := targetRevision{revision: set.Status.UpdateRevision, currentRevision: set.Status.CurrentRevision, unusable: unusable}
	template, err := r.podTemplates.Holder(ctx, set, r.lookup)
	switch {
	case err != nil:
		return targetRevision{}, err
	case template == nil:
		return t, nil // claims can still take what is left of the pool
	}
	t.setAtRevision, t.resolved = podtemplate.AtRevision(set, template)
	return t, nil
}

// resolve returns the revision that a set's spec asks for, and its pod template. It
// remembers what is wrong with it: a pool is counted far more often than its template
// changes.
func (r *revisions) resolve(ctx context.Context, set *v1alpha1.SandboxSet) (string, *podtemplate.Resolved, error) {
	found, err := r.podTemplates.ResolveSet(ctx, set, r.lookup)
	if err != nil {
		return "", nil, err
	}
	revision, err := r.podTemplates.SetRevision(set, found)
	switch {
	case set.Spec.Template != nil && err != nil:
		return "", nil, reconcile.TerminalError(err)
	case set.Spec.Template != nil: // validated when it was stored
		return revision, found, nil
	case err != nil:
		return "", nil, fmt.Errorf("%w: %w", templates.ErrInvalid, err)
	}
	key, of := client.ObjectKeyFromObject(set), validatedRevision{generation: set.Generation, revision: revision}
	var known validatedRevision
	r.states.withState(key, func(s *setState) { known = s.revision.validated })
	if known.generation != of.generation || known.revision != of.revision {
		known = of
		known.err = validateResolved(set, found)
		r.states.withState(key, func(s *setState) { s.revision.validated = known })
	}
	return revision, found, known.err
}

// validateResolved returns what is wrong with the pod template of a set that was resolved.
func validateResolved(set *v1alpha1.SandboxSet, found *podtemplate.Resolved) error {
	errs := validation.ValidatePodTemplate(found.Template, field.NewPath("template"))
	errs = append(errs, validation.ValidateMounted(
		found.Template, set.Spec.VolumeClaimTemplates, field.NewPath("spec", "volumeClaimTemplates"))...)
	if err := errs.ToAggregate(); err != nil {
		return fmt.Errorf("%w: %w", templates.ErrInvalid, err)
	}
	if err := found.CheckService(set.Name); err != nil {
		return fmt.Errorf("%w: the template has service: true, but %w", templates.ErrInvalid, err)
	}
	// Metadata that no sandbox can inherit, say.
	if _, err := podtemplate.NewSandbox(set, "", found); err != nil {
		return fmt.Errorf("%w: %w", templates.ErrInvalid, err)
	}
	return nil
}
