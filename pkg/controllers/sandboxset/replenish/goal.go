// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// goal is the revision of a set that its pool should consist of: what its spec
// asks for, or, while what it refers to cannot be used, the last that could.
type goal struct {
	revision string
	// holder is the name of the SandboxTemplate that holds a revision and was last
	// known to be there, or empty where there never was one. It is that of another
	// revision only for sets with a template of their own, which do not need it.
	holder string
	// from is the set as it was at the revision, and resolved its pod template; nil
	// where no sandboxes can be made.
	from     *v1alpha1.SandboxSet
	resolved *podtemplate.Resolved
	// chain are the templates that the spec leads to, where it could be used.
	chain []string
	// unresolved is why the goal is not what the spec asks for.
	unresolved *trouble
	// materializeErr is why the holder could not be made, where that is no fault of
	// the template's and sandboxes need it.
	materializeErr error
	// retry is after what time to look again even if no event comes; 0 is never.
	retry time.Duration
}

// retryHolder is after what time a SandboxTemplate that could not be made, for a
// reason that does not go away by itself, is tried again.
const retryHolder = time.Minute

// goal finds out what the pool should consist of, and makes the SandboxTemplate
// that holds it where there is none. An error means that nothing is known.
func (c *Controller) goal(ctx context.Context, set *v1alpha1.SandboxSet) (goal, error) {
	revision, resolved, err := c.resolved.resolve(ctx, set, c.options.Lookup)
	switch why := unresolvedFor(err); {
	case why != nil:
		return c.lastGoal(ctx, set, why)
	case err != nil:
		return goal{}, err
	}
	g := goal{
		revision: revision, holder: podtemplate.RevisionName(set, revision),
		from: set, resolved: resolved, chain: resolved.Chain,
	}
	if set.Spec.Template != nil {
		// Its sandboxes do not need the holder.
		if g.retry = c.materializeInline(ctx, set, revision, resolved); g.retry > 0 {
			g.holder = set.Status.CurrentRevision
		}
		return g, nil
	}
	err = c.materialize(ctx, set, revision, resolved)
	if err == nil {
		return g, nil
	}
	return c.goalWithout(ctx, set, resolved, err)
}

// goalWithout is the goal where the SandboxTemplate for what the spec asks for
// could not be made: what the pool consisted of until now.
func (c *Controller) goalWithout(
	ctx context.Context, set *v1alpha1.SandboxSet, resolved *podtemplate.Resolved, err error,
) (goal, error) {
	var why *trouble
	switch {
	case errors.Is(err, errNameTaken):
		why = &trouble{v1alpha1.ReasonTemplateNameTaken, cutMessage(err.Error())}
	case apierrors.IsInvalid(err):
		// No pod of this cluster can be like that, which the API server has asked.
		why = &trouble{v1alpha1.ReasonInvalidTemplate, cutMessage(err.Error())}
	}
	g, lastErr := c.lastGoal(ctx, set, why)
	if lastErr != nil {
		return goal{}, errors.Join(err, lastErr)
	}
	switch {
	case why != nil:
		g.retry = retryHolder // neither a name nor what the cluster takes need to tell us
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		g.chain = resolved.Chain // the set will go as well
	default:
		g.chain, g.materializeErr = resolved.Chain, err
	}
	return g, nil
}

// lastGoal is the revision that the pool was last to consist of.
func (c *Controller) lastGoal(ctx context.Context, set *v1alpha1.SandboxSet, why *trouble) (goal, error) {
	g := goal{revision: set.Status.UpdateRevision, holder: set.Status.CurrentRevision, unresolved: why}
	if g.holder == "" || g.holder != podtemplate.RevisionName(set, g.revision) {
		return g, nil // it was never held
	}
	holder, err := c.options.Lookup.SandboxTemplate(ctx, set.Namespace, g.holder)
	switch {
	case err != nil:
		return goal{}, err
	case holder == nil || !metav1.IsControlledBy(holder, set) || holder.Spec.Template == nil:
		return g, nil // somebody took it away; what is left of the pool serves on
	}
	g.from, g.resolved = podtemplate.AtRevision(set, holder)
	return g, nil
}

// makes says whether sandboxes of the goal can be made.
func (g *goal) makes() bool { return g.resolved != nil }

// unresolvedFor says why a template cannot be used, if that is what an error is
// about, as opposed to the moment.
func unresolvedFor(err error) *trouble {
	if reason := templates.ReasonFor(err); reason != "" {
		return &trouble{reason, cutMessage(err.Error())}
	}
	return nil
}

// maxMessage is how long the message of a condition may be here. The API takes
// 32768 bytes; nobody reads that.
const maxMessage = 2048

func cutMessage(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	const more = " ..."
	return strings.ToValidUTF8(message[:maxMessage-len(more)], "") + more
}

// setResolved tells in the status whether the spec's template could be used.
func (o *observation) setResolved(status *v1alpha1.SandboxSetStatus) {
	if o.set.Spec.Template != nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.SetConditionTemplateResolved)
		return
	}
	condition := metav1.Condition{
		Type:               v1alpha1.SetConditionTemplateResolved,
		Status:             metav1.ConditionTrue,
		Reason:             v1alpha1.ReasonResolved,
		ObservedGeneration: o.set.Generation,
		LastTransitionTime: metav1.NewTime(o.now),
	}
	if len(o.chain) > 0 {
		condition.Message = fmt.Sprintf("The pod template is that of %s", strings.Join(o.chain, " -> "))
	}
	if o.unresolved != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, o.unresolved.reason, o.unresolved.message
	}
	meta.SetStatusCondition(&status.Conditions, condition)
}
