// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/apiwarning"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// holderRetry is after what time a SandboxTemplate that could not be created, for a
// reason that does not go away by itself, is tried again.
const holderRetry = time.Minute

// errNameTaken means that a SandboxTemplate of the name is not the set's, or does not hold
// its revision.
var errNameTaken = errors.New("the name is taken")

// holders keeps the SandboxTemplates that hold the revisions of sets.
type holders struct {
	client  client.Client
	server  client.Reader // reads past the cache
	clock   clock.PassiveClock
	indexes *indexes
	states  *setStates
	report  *reporter
	// podTemplates remembers which SandboxTemplates hold their revision.
	podTemplates *podtemplate.Cache
}

// ensure creates the SandboxTemplate that holds a revision of a set, unless it
// is there. It comes before the sandboxes that refer to it. An error that does not go away by
// itself is remembered: it is returned again, with the time until the next try, and nothing is
// sent.
func (r *holders) ensure(
	ctx context.Context, set *v1alpha1.SandboxSet, revision string, resolved *podtemplate.Resolved,
) (retryAfter time.Duration, err error) {
	key, name, now := client.ObjectKeyFromObject(set), podtemplate.RevisionName(set, revision), r.clock.Now()
	var before revisionMissing
	r.states.withState(key, func(s *setState) { before = s.revision.missing })
	if wait := before.retryAt.Sub(now); before.name == name && wait > 0 {
		return wait, before.err
	}
	var missing revisionMissing
	if err = r.createOrReplace(ctx, set, revision, resolved); isRetriedLater(set, err) {
		missing, retryAfter = revisionMissing{name, err, now.Add(holderRetry)}, holderRetry
	}
	r.states.withState(key, func(s *setState) { s.revision.missing = missing })
	isNews := before.name != name || before.err == nil || err == nil || before.err.Error() != err.Error()
	if set.Spec.Template != nil && missing.err != nil && isNews { // other sets have a condition for it
		log.FromContext(ctx).Error(err, "Failed to find the SandboxTemplate of a revision", "revision", revision)
		r.report.revisionMissing(set, err)
	}
	return retryAfter, err
}

// isRetriedLater reports whether an error of createOrReplace is one to try again after holderRetry:
// the API refuses the content, or the name is taken. A set with a template of its own does not need
// the SandboxTemplate, so any refusal can wait. For other sets an exceeded
// quota cannot: deleteUnused may make room at once.
func isRetriedLater(set *v1alpha1.SandboxSet, err error) bool {
	return apierrors.IsInvalid(err) || errors.Is(err, errNameTaken) || set.Spec.Template != nil && refused(err)
}

// createOrReplace creates the SandboxTemplate that holds a revision of a set, unless it is there. One
// that is the set's and has other content is replaced.
func (r *holders) createOrReplace(
	ctx context.Context, set *v1alpha1.SandboxSet, revision string, resolved *podtemplate.Resolved,
) error {
	name := podtemplate.RevisionName(set, revision)
	owned, err := r.indexes.revisionsOf(set)
	if err != nil {
		return err
	}
	for _, template := range owned {
		if template.Name == name && template.DeletionTimestamp == nil && r.podTemplates.HoldsRevision(template, revision) {
			return r.retarget(ctx, set, template, revision, owned)
		}
	}
	wanted := podtemplate.NewHolder(set, revision, resolved)
	if err := r.create(ctx, set, wanted, revision); !apierrors.IsAlreadyExists(err) {
		return err
	}
	// Created before, and not in the cache yet, or not what it should be.
	existing := &v1alpha1.SandboxTemplate{}
	key := client.ObjectKey{Namespace: set.Namespace, Name: name}
	if err := r.server.Get(ctx, key, existing); err != nil {
		return fmt.Errorf("getting SandboxTemplate %s: %w", key, err)
	}
	switch {
	case metav1.IsControlledBy(existing, set) && r.podTemplates.HoldsRevision(existing, revision):
		return nil
	case metav1.IsControlledBy(existing, set):
		return r.replace(ctx, set, existing, wanted, revision)
	case adoptable(existing, wanted):
		return r.adopt(ctx, existing, wanted)
	default:
		return fmt.Errorf("SandboxTemplate %s, which is to hold a revision of SandboxSet %s, is not the set's: %w", key, set.Name, errNameTaken)
	}
}

// create creates the SandboxTemplate that holds a revision. Whatever changes it on the
// way to the store keeps it from holding that.
func (r *holders) create(
	ctx context.Context, set *v1alpha1.SandboxSet, wanted *v1alpha1.SandboxTemplate, revision string,
) error {
	asking, warnings := apiwarning.Collect(ctx)
	created := wanted.DeepCopy()
	switch err := r.client.Create(asking, created); {
	case err != nil:
		return fmt.Errorf("creating SandboxTemplate %s/%s: %w", wanted.Namespace, wanted.Name, err)
	case !podtemplate.HoldsRevision(created, revision):
		return fmt.Errorf("SandboxTemplate %s/%s, which is to hold a revision of SandboxSet %s, is stored with other content than it was created with: %w",
			wanted.Namespace, wanted.Name, set.Name, errNameTaken)
	}
	r.states.withState(client.ObjectKeyFromObject(set), func(s *setState) {
		s.revision.dryRun = &dryRunResult{revision, warnings.Texts()}
	})
	return nil
}

// replace deletes a SandboxTemplate that is said to be the set's and does not hold the
// revision of its name, and creates the one that does. Where others continue like this, that
// is done once in a while.
func (r *holders) replace(
	ctx context.Context, set *v1alpha1.SandboxSet, existing, wanted *v1alpha1.SandboxTemplate, revision string,
) error {
	key, now := client.ObjectKeyFromObject(set), r.clock.Now()
	var last time.Time
	r.states.withState(key, func(s *setState) { last = s.revision.replaced })
	if now.Sub(last) < holderRetry {
		return fmt.Errorf("SandboxTemplate %s/%s has not the content of the revision of SandboxSet %s that it is to hold, and was replaced a moment ago: %w",
			existing.Namespace, existing.Name, set.Name, errNameTaken)
	}
	err := r.client.Delete(ctx, existing, client.Preconditions{UID: &existing.UID, ResourceVersion: &existing.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting SandboxTemplate %s/%s, which has other content: %w", existing.Namespace, existing.Name, err)
	}
	r.states.withState(key, func(s *setState) { s.revision.replaced = now })
	r.report.revisionReplaced(set, existing.Name)
	err = r.create(ctx, set, wanted, revision)
	if apierrors.IsAlreadyExists(err) { // with a finalizer, or made anew meanwhile
		return fmt.Errorf("%w: %w", errNameTaken, err)
	}
	return err
}

// retarget makes the SandboxTemplate of a revision name the template that the set
// refers to. That is part of a revision only where it has a NetworkPolicy, so another
// one can have the same revision. Where the set comes back to a revision, that is noted, unless it is the
// newest of those that the set owns anyway.
func (r *holders) retarget(
	ctx context.Context, set *v1alpha1.SandboxSet, template *v1alpha1.SandboxTemplate, revision string, owned []*v1alpha1.SandboxTemplate,
) error {
	want := v1alpha1.TemplateLabel(podtemplate.TemplateOf(set))
	back := set.Status.UpdateRevision != "" && set.Status.UpdateRevision != revision &&
		slices.ContainsFunc(owned, func(other *v1alpha1.SandboxTemplate) bool {
			return other != template && !lastUse(other).Before(lastUse(template))
		})
	if template.Labels[v1alpha1.LabelSandboxTemplate] == want && !back {
		return nil
	}
	changed := template.DeepCopy()
	metav1.SetMetaDataLabel(&changed.ObjectMeta, v1alpha1.LabelSandboxTemplate, want)
	if back {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1alpha1.AnnotationRevisionReused, r.clock.Now().UTC().Format(time.RFC3339))
	}
	err := r.client.Patch(ctx, changed, client.MergeFrom(template))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("labelling SandboxTemplate %s/%s: %w", template.Namespace, template.Name, err)
	}
	return nil
}

// adoptable reports whether a SandboxTemplate without an owner is what would be
// created: a set that was deleted without what it owned leaves such ones to the next
// of its name.
func adoptable(existing, wanted *v1alpha1.SandboxTemplate) bool {
	if existing.DeletionTimestamp != nil || len(existing.OwnerReferences) > 0 {
		return false
	}
	for _, label := range []string{v1alpha1.LabelSandboxPool, v1alpha1.LabelTemplateHash} {
		if existing.Labels[label] != wanted.Labels[label] {
			return false
		}
	}
	a, errA := jsonValue(&existing.Spec)
	b, errB := jsonValue(&wanted.Spec)
	return errA == nil && errB == nil && reflect.DeepEqual(a, b)
}

// jsonValue is a spec as JSON values: the server need not store the raw parts byte by
// byte as they were sent.
func jsonValue(spec *v1alpha1.SandboxTemplateSpec) (any, error) {
	encoded, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	var value any
	err = decoder.Decode(&value)
	return value, err
}

// adopt makes a template the set's, unless it has changed since it was read.
func (r *holders) adopt(ctx context.Context, existing, wanted *v1alpha1.SandboxTemplate) error {
	adopted := existing.DeepCopy()
	adopted.OwnerReferences = append([]metav1.OwnerReference(nil), wanted.OwnerReferences...)
	patch := client.MergeFromWithOptions(existing, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, adopted, patch); err != nil {
		return fmt.Errorf("adopting SandboxTemplate %s/%s: %w", existing.Namespace, existing.Name, err)
	}
	return nil
}

// defaultRevisionHistory is how many revisions that nothing uses are kept where a set does
// not say it, as with Deployments.
const defaultRevisionHistory = 10

// historyOf is how many of them a set keeps. It keeps none while a quota has no room for
// the one that it needs. Only the text of the error shows that a quota, and not a policy, refused it.
func historyOf(set *v1alpha1.SandboxSet, refused error) int {
	switch limit := set.Spec.RevisionHistoryLimit; {
	case apierrors.IsForbidden(refused) && strings.Contains(refused.Error(), "exceeded quota"):
		return 0
	case limit != nil:
		return int(*limit)
	}
	return defaultRevisionHistory
}

// deleteUnused deletes the SandboxTemplates of older revisions that no sandbox of the
// pool refers to any more, nor anything else, and that are more than the set is to keep:
// the oldest first. Claimed sandboxes do not refer to them: a claim makes them hold their
// template themselves.
func (r *holders) deleteUnused(ctx context.Context, set *v1alpha1.SandboxSet, revision string, keep int, p *pool) error {
	owned, err := r.indexes.revisionsOf(set)
	target := podtemplate.RevisionName(set, revision)
	if err != nil || len(owned) <= keep || len(owned) == 1 && owned[0].Name == target {
		return err
	}
	unused, err := r.unused(owned, sets.New(target, set.Status.CurrentRevision, podtemplate.HolderOf(&set.Status)), p)
	errs := []error{err}
	slices.SortFunc(unused, byLastUse)
	for _, template := range unused[:max(0, len(unused)-keep)] {
		err = r.client.Delete(ctx, template, client.Preconditions{UID: &template.UID})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("deleting SandboxTemplate %s/%s: %w", template.Namespace, template.Name, err))
		}
	}
	return errors.Join(errs...)
}

// unused returns those of a set's SandboxTemplates that are not current and that no
// sandbox of the pool refers to, nor anything else.
func (r *holders) unused(owned []*v1alpha1.SandboxTemplate, current sets.Set[string], p *pool) ([]*v1alpha1.SandboxTemplate, error) {
	inPool := p.refersTo()
	var errs []error
	var unused []*v1alpha1.SandboxTemplate
	for _, template := range owned {
		if current.Has(template.Name) || inPool(template) || template.DeletionTimestamp != nil {
			continue
		}
		// Users who may write sets or sandboxes here may refer to it.
		used, err := r.indexes.isUsed(template)
		if err != nil {
			errs = append(errs, err)
		}
		if !used {
			unused = append(unused, template)
		}
	}
	return unused, errors.Join(errs...)
}

// refersTo returns a function that reports whether a sandbox of the pool refers to a
// SandboxTemplate. What those refer to that the cache does not show yet is not known but by
// its revision.
func (p *pool) refersTo() func(*v1alpha1.SandboxTemplate) bool {
	names, revisions := sets.New[string](), sets.New[string]()
	for _, revision := range p.expectedCreates {
		revisions.Insert(revision)
	}
	for _, sandbox := range p.sandboxes {
		if ref := sandbox.Spec.TemplateRef; ref != nil {
			names.Insert(ref.Name)
		} else if revision := revisionOf(sandbox); revision != "" {
			revisions.Insert(revision)
		}
	}
	return func(template *v1alpha1.SandboxTemplate) bool {
		return names.Has(template.Name) || revisions.Has(template.Labels[v1alpha1.LabelTemplateHash])
	}
}

// byLastUse sorts SandboxTemplates by when a set last made them its target.
func byLastUse(a, b *v1alpha1.SandboxTemplate) int {
	return cmp.Or(lastUse(a).Compare(lastUse(b)), strings.Compare(a.Name, b.Name))
}

// lastUse is when a set last made a SandboxTemplate its target, as far as that is noted.
func lastUse(template *v1alpha1.SandboxTemplate) time.Time {
	created := template.CreationTimestamp.Time
	reused, err := time.Parse(time.RFC3339, template.Annotations[v1alpha1.AnnotationRevisionReused])
	if err != nil || reused.Before(created) {
		return created
	}
	return reused
}
