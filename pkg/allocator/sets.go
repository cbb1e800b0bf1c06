// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// SetListed begins a new picture of all sets.
func (a *Allocator) SetListed(all []*v1alpha1.SandboxSet, resourceVersion uint64) {
	gone := a.catalog.replace(all, resourceVersion)
	for _, set := range all {
		a.feed.SetChanged(set)
	}
	for _, p := range gone {
		a.index.ForgetPool(p)
	}
	a.bringBack(func(poolindex.Pool) bool { return true })
	a.jobs.each((*job).nudge)
}

// SetChanged takes in the current state of a set. Claims that it did not serve, or
// that it is meant to hold less or more for, look again.
func (a *Allocator) SetChanged(set *v1alpha1.SandboxSet) {
	before := a.catalog.change(set)
	a.feed.SetChanged(set)
	a.bringBack(func(p poolindex.Pool) bool { return p == poolOf(set) })
	a.setMoved(setChange{before, set})
}

// setMoved lets the claims look again to which a change of a set may matter.
func (a *Allocator) setMoved(change setChange) {
	before, set := change.before, change.after
	if set == nil {
		a.jobs.nudgeServed(before)
		return
	}
	switch {
	case before == nil, before.UID != set.UID, holds(before, true) != holds(set, true),
		v1alpha1.SandboxTemplateOf(before) != v1alpha1.SandboxTemplateOf(set), rankOf(before) != rankOf(set):
		a.jobs.nudgeServed(before, set)
	case before.Generation != set.Generation, before.Status.CurrentRevision != set.Status.CurrentRevision:
		a.jobs.nudgeStuck(set.Namespace) // sandboxes can be made of it now, perhaps
	}
}

// SetDeleted takes in that a set is gone.
func (a *Allocator) SetDeleted(set *v1alpha1.SandboxSet) {
	a.catalog.delete(set)
	a.feed.SetDeleted(set)
	a.bringBack(func(p poolindex.Pool) bool { return p == poolOf(set) })
	a.setMoved(setChange{before: set})
}

// TemplateListed begins a new picture of all templates.
func (a *Allocator) TemplateListed([]*v1alpha1.SandboxTemplate, uint64) {
	a.bringBack(func(poolindex.Pool) bool { return true })
	a.jobs.each((*job).nudge)
}

// TemplateChanged takes in that a template is new or another. Claims that could not
// be served for want of it look again.
func (a *Allocator) TemplateChanged(template *v1alpha1.SandboxTemplate) {
	a.bringBackIn(template.Namespace)
	a.jobs.nudgeStuck(template.Namespace)
}

// TemplateDeleted takes in that a template is gone, which may be the end of a
// circle.
func (a *Allocator) TemplateDeleted(template *v1alpha1.SandboxTemplate) {
	a.bringBackIn(template.Namespace)
	a.jobs.nudgeStuck(template.Namespace)
}

// nudgeServed lets the jobs look again that one of the sets may serve.
func (js *jobs) nudgeServed(sets ...*v1alpha1.SandboxSet) {
	js.each(func(j *job) {
		seen := j.published.Load()
		for _, set := range sets {
			if seen != nil && concerns(seen, set) {
				j.nudge()
				return
			}
		}
	})
}

// nudgeStuck lets the jobs of a namespace look again that nothing serves.
func (js *jobs) nudgeStuck(namespace string) {
	js.each(func(j *job) {
		if seen := j.published.Load(); seen != nil && seen.Namespace == namespace && j.stuck.Load() {
			j.nudge()
		}
	})
}
