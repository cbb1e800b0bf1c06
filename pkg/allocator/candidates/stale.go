// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"errors"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// revisionStaleness is whether the candidates of a pool that are of one revision are stale:
// their set recreates what is not of its template as that is now. Such a candidate is left
// for the controller, which deletes it; a claim must not be faster.
type revisionStaleness struct {
	pool     poolindex.Pool
	revision string
	stale    bool
	// asOf is the count of resumes before that was found out.
	asOf uint64
}

// CheckStale returns a NoTemplateError for a candidate that is stale, and so keeps all that
// are like it from claims until the set or a template changes. It reads nothing
// but caches, for each revision of a pool once in an attempt as long as none does.
func (p *Preparer) CheckStale(ctx context.Context, pool poolindex.Pool, sb *v1alpha1.Sandbox) error {
	set := p.Stock.Sets.Set(pool.Namespace, pool.Name)
	if set == nil || string(set.UID) != pool.UID || set.Spec.UpdateStrategy.Type != v1alpha1.SetUpdateRecreate {
		return nil
	}
	asOf, revision := p.Stock.Index.Suspensions.Resumes(), sb.Labels[v1alpha1.LabelTemplateHash]
	for i := range p.staleness {
		if known := &p.staleness[i]; known.pool == pool && known.revision == revision && known.asOf == asOf {
			return known.err()
		}
	}
	stale, err := p.isStale(ctx, set, sb)
	if err != nil {
		return err
	}
	p.staleness = append(p.staleness, revisionStaleness{pool, revision, stale, asOf})
	return p.staleness[len(p.staleness)-1].err()
}

func (s *revisionStaleness) err() error {
	if s.stale {
		return NoTemplateError{s.asOf}
	}
	return nil
}

// isStale reports whether the set of a sandbox replaces it, by podtemplate.RecreateReplaces. Where
// the set has no template now, what is left of the pool serves on, and where the cluster
// has not answered, the sandbox waits.
func (p *Preparer) isStale(ctx context.Context, set *v1alpha1.SandboxSet, sb *v1alpha1.Sandbox) (bool, error) {
	resolved, err := p.Templates.cache.ResolveSet(ctx, set, p.Templates.late)
	switch {
	case isAboutTemplates(err):
		return false, nil
	case errors.Is(err, errNoAnswer):
		return true, nil
	case err != nil:
		return false, err
	}
	if hasInvalidTemplate(set) { // the pool keeps serving the sandboxes that it has
		return false, nil
	}
	current, err := p.Templates.cache.SetRevision(set, resolved)
	if err != nil {
		return true, nil //nolint:nilerr // what has no revision, no sandbox is of
	}
	return podtemplate.RecreateReplaces(set, sb, current, func(string) bool {
		return p.sameButMetadata(ctx, set, sb, current, resolved)
	}), nil
}

// sameButMetadata reports whether the revision of a sandbox differs in metadata alone from
// the current one of its set. Of a revision that is not stored that is not known.
func (p *Preparer) sameButMetadata(
	ctx context.Context, set *v1alpha1.SandboxSet, sb *v1alpha1.Sandbox, current string, resolved *podtemplate.Resolved,
) bool {
	revision := sb.Labels[v1alpha1.LabelTemplateHash]
	pair := [2]string{current, revision}
	if known, ok := p.Templates.sameButMetadata.Get(pair); ok {
		return known.(bool)
	}
	holders := podtemplate.PossibleHolders(sb)
	if podtemplate.RefersToRevision(sb) {
		holders = []string{sb.Spec.TemplateRef.Name}
	}
	for _, name := range holders {
		held, err := p.Stock.Store.SandboxTemplate(ctx, set.Namespace, name)
		if err == nil && held != nil && p.Templates.cache.HoldsRevision(held, revision) {
			same := podtemplate.SameButMetadata(podtemplate.NewHolder(set, current, resolved), held)
			p.Templates.sameButMetadata.Add(pair, same)
			return same
		}
	}
	return false
}
