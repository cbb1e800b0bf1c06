// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// resolved finds the pod templates of sets, judges them, and remembers what came of
// it: a pool is looked at far more often than its template changes.
type resolved struct {
	cache *podtemplate.Cache

	mu   sync.Mutex
	sets map[types.NamespacedName]judged
}

// judged is what came of one template for one state of a set's spec. Templates are
// told apart by where they are: cache and informers keep them until they change.
type judged struct {
	uid        types.UID
	generation int64
	template   *runtime.RawExtension
	service    string
	managed    bool

	revision string
	err      error
}

func newResolved() *resolved {
	return &resolved{cache: podtemplate.NewCache(), sets: map[types.NamespacedName]judged{}}
}

// resolve returns the revision that a set's spec asks for, and its pod template.
func (r *resolved) resolve(
	ctx context.Context, set *v1alpha1.SandboxSet, lookup podtemplate.Lookup,
) (string, *podtemplate.Resolved, error) {
	found, err := r.cache.ResolveSet(ctx, set, lookup)
	if err != nil {
		return "", nil, err
	}
	if set.Spec.Template != nil { // judged when it was stored
		revision, err := podtemplate.SetRevision(set, found)
		if err != nil {
			return "", nil, reconcile.TerminalError(err)
		}
		return revision, found, nil
	}
	key := client.ObjectKeyFromObject(set)
	r.mu.Lock()
	known, ok := r.sets[key]
	r.mu.Unlock()
	if !ok || !known.isOf(set, found) {
		known = judgedOf(set, found)
		r.mu.Lock()
		r.sets[key] = known
		r.mu.Unlock()
	}
	return known.revision, found, known.err
}

// isOf says whether this came of the state of a set that is here now.
func (j *judged) isOf(set *v1alpha1.SandboxSet, found *podtemplate.Resolved) bool {
	return j.uid == set.UID && j.generation == set.Generation &&
		j.template == found.Template && j.service == said(found.Service) && j.managed == found.NetworkManaged
}

func judgedOf(set *v1alpha1.SandboxSet, found *podtemplate.Resolved) judged {
	j := judged{
		uid: set.UID, generation: set.Generation,
		template: found.Template, service: said(found.Service), managed: found.NetworkManaged,
	}
	errs := validation.ValidateResolvedTemplate(found.Template, field.NewPath("template"))
	errs = append(errs, validation.ValidateMounted(
		found.Template, set.Spec.VolumeClaimTemplates, field.NewPath("spec", "volumeClaimTemplates"))...)
	if err := errs.ToAggregate(); err != nil {
		j.err = fmt.Errorf("SandboxSet %s/%s: %w: %w", set.Namespace, set.Name, templates.ErrInvalid, err)
		return j
	}
	// Metadata that no sandbox can inherit, say.
	if _, err := podtemplate.NewSandbox(set, "", found); err != nil {
		j.err = fmt.Errorf("%w: %w", templates.ErrInvalid, err)
		return j
	}
	if j.revision, j.err = podtemplate.SetRevision(set, found); j.err != nil {
		j.err = fmt.Errorf("%w: %w", templates.ErrInvalid, j.err)
	}
	return j
}

// said is an optional bool as something to compare.
func said(value *bool) string {
	if value == nil {
		return ""
	}
	return strconv.FormatBool(*value)
}

// forget drops all about a set that is gone.
func (r *resolved) forget(set types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sets, set)
}
