// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// Of many sets, some are judged and fewer are named: the change is made in a request, and
// warnings are for people, and headers of an answer. The controller judges all of them
// once the change is stored, and tells it in their condition TemplateResolved.
const (
	// maxJudged is how many contents are judged for one change. Sets that say the same are
	// one.
	maxJudged = 50
	// maxJudgedBytes is how many bytes of pod templates and patches are.
	maxJudgedBytes = 2 << 20
	maxSetsNamed   = 10
)

// WarnOfSets warns of the sets that use a template, straight or through others, and
// cannot follow a change of it. The change is made all the same: they keep what
// they have. Of those that are too many to be judged here it says how many there are.
func (v *Validator) WarnOfSets(ctx context.Context, template *v1alpha1.SandboxTemplate) []string {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sets, err := v.Sets(ctx, template.Namespace)
	if err != nil {
		return []string{fmt.Sprintf("the sets that use this template could not be looked up, and are not checked: %v", err)}
	}
	j := newJudge(v.Lookup, template)
	var warnings []string
	refused, unjudged := 0, 0
	for _, set := range sets {
		if set.Spec.TemplateRef == nil || set.Spec.Template != nil || set.DeletionTimestamp != nil || !j.uses(ctx, set) {
			continue
		}
		why, judged := j.whyNot(ctx, set)
		switch {
		case !judged:
			unjudged++
		case why == "":
		case refused == maxSetsNamed:
			warnings = append(warnings, "and more sets like these")
			refused++
		case refused < maxSetsNamed:
			warnings = append(warnings, fmt.Sprintf("SandboxSet %s cannot follow this change, and keeps its sandboxes as they are: %s", set.Name, why))
			refused++
		}
	}
	if unjudged > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"%d more sets use this template and are not checked here: see their condition %s", unjudged, v1alpha1.SetConditionTemplateResolved))
	}
	return warnings
}

// judge finds out which sets can follow a change of a template, and does not do the same
// work twice.
type judge struct {
	lookup *afterChange
	// used is by reference whether it leads to the template.
	used map[v1alpha1.SandboxTemplateRef]bool
	// verdicts are by content why no sandboxes can be made from it.
	verdicts map[verdictKey]string
	bytes    int
}

// verdictKey identifies sets that get the same verdict.
type verdictKey struct {
	ref           v1alpha1.SandboxTemplateRef
	patch, claims [sha256.Size]byte
	// hasNoServiceName: the names of its sandboxes are not valid for Services.
	hasNoServiceName bool
}

func newJudge(lookup podtemplate.Lookup, template *v1alpha1.SandboxTemplate) *judge {
	return &judge{
		lookup:   &afterChange{Lookup: lookup, template: template, podTemplates: map[string]podTemplateAnswer{}},
		used:     map[v1alpha1.SandboxTemplateRef]bool{},
		verdicts: map[verdictKey]string{},
	}
}

// uses reports whether a set refers to the template, straight or through others. A
// PodTemplate refers to nothing, and need not be asked for.
func (j *judge) uses(ctx context.Context, set *v1alpha1.SandboxSet) bool {
	ref := *set.Spec.TemplateRef
	if ref.Kind == v1alpha1.TemplateKindPodTemplate {
		return false
	}
	used, known := j.used[ref]
	if !known {
		without := *set
		without.Spec.Patch = nil
		j.lookup.used = false
		// Where it leads is judged with each patch.
		_, _ = podtemplate.ResolveSet(ctx, &without, j.lookup)
		used = j.lookup.used
		j.used[ref] = used
	}
	return used
}

// whyNot returns why no sandboxes can be made for a set; empty if they can. It returns
// false where that is not found out, because the request has cost enough.
func (j *judge) whyNot(ctx context.Context, set *v1alpha1.SandboxSet) (string, bool) {
	key := verdictKey{ref: *set.Spec.TemplateRef, claims: sumOf(set.Spec.VolumeClaimTemplates...)}
	key.hasNoServiceName = (&podtemplate.Resolved{Service: new(true)}).CheckService(set.Name) != nil
	cost := 0
	if set.Spec.Patch != nil {
		key.patch, cost = sumOf(*set.Spec.Patch), len(set.Spec.Patch.Raw)
	}
	if why, known := j.verdicts[key]; known {
		return why, true
	}
	if len(j.verdicts) >= maxJudged || j.bytes >= maxJudgedBytes || ctx.Err() != nil {
		return "", false
	}
	resolved, err := podtemplate.ResolveSet(ctx, set, j.lookup)
	if ctx.Err() != nil {
		return "", false // which may be the error
	}
	j.bytes += cost
	if err == nil {
		j.bytes += len(resolved.Template.Raw)
	} else if own := j.lookup.template.Spec.Template; own != nil {
		j.bytes += len(own.Raw)
	}
	j.verdicts[key] = verdict(set, resolved, err)
	return j.verdicts[key], true
}

// verdict says why no sandboxes can be made of what a set has resolved to.
func verdict(set *v1alpha1.SandboxSet, resolved *podtemplate.Resolved, err error) string {
	if err != nil {
		return strings.TrimPrefix(err.Error(), fmt.Sprintf("SandboxSet %s/%s: ", set.Namespace, set.Name))
	}
	errs := validation.ValidatePodTemplate(resolved.Template, field.NewPath("template"))
	errs = append(errs, validation.ValidateMounted(resolved.Template, set.Spec.VolumeClaimTemplates, claimsPath)...)
	if len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	if err := resolved.CheckService(set.Name); err != nil {
		return "the template has service: true, but " + err.Error()
	}
	return ""
}

// sumOf tells raw parts apart.
func sumOf(parts ...runtime.RawExtension) [sha256.Size]byte {
	sum := sha256.New()
	for i := range parts {
		_, _ = fmt.Fprintf(sum, "%d ", len(parts[i].Raw))
		_, _ = sum.Write(parts[i].Raw)
	}
	return [sha256.Size]byte(sum.Sum(nil))
}

// afterChange finds templates as they will be when one of them has changed.
type afterChange struct {
	podtemplate.Lookup
	template *v1alpha1.SandboxTemplate
	// used: that one was asked for.
	used bool
	// podTemplates keeps what many sets ask of the cluster.
	podTemplates map[string]podTemplateAnswer
}

type podTemplateAnswer struct {
	template *corev1.PodTemplate
	err      error
}

// SandboxTemplate implements podtemplate.Lookup.
func (l *afterChange) SandboxTemplate(ctx context.Context, namespace, name string) (*v1alpha1.SandboxTemplate, error) {
	if namespace == l.template.Namespace && name == l.template.Name {
		l.used = true
		return l.template, nil
	}
	return l.Lookup.SandboxTemplate(ctx, namespace, name)
}

// PodTemplate implements podtemplate.Lookup.
func (l *afterChange) PodTemplate(ctx context.Context, namespace, name string) (*corev1.PodTemplate, error) {
	if answer, ok := l.podTemplates[name]; ok {
		return answer.template, answer.err
	}
	template, err := l.Lookup.PodTemplate(ctx, namespace, name)
	l.podTemplates[name] = podTemplateAnswer{template, err}
	return template, err
}
