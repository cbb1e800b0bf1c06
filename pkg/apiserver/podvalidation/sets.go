// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// Of many sets, some are checked and fewer are named: warnings are for people, and
// headers of an answer.
const (
	maxSetsChecked = 500
	maxSetsNamed   = 10
)

// WarnOfSets warns of the sets that use a template, straight or through others, and
// cannot follow a change of it. The change is made all the same: they keep what
// they have.
func (v *Validator) WarnOfSets(ctx context.Context, template *v1alpha1.SandboxTemplate) []string {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sets, err := v.Sets(ctx, template.Namespace)
	if err != nil {
		return []string{fmt.Sprintf("the sets that use this template could not be looked up, and are not checked: %v", err)}
	}
	after := &afterChange{Lookup: v.Lookup, template: template, podTemplates: map[string]podTemplateAnswer{}}
	var warnings []string
	looked := 0
	for _, set := range sets {
		if set.Spec.TemplateRef == nil || set.DeletionTimestamp != nil {
			continue
		}
		if looked++; looked > maxSetsChecked {
			break
		}
		after.used = false
		why := whyNot(ctx, set, after)
		if why == "" || !after.used {
			continue
		}
		if len(warnings) == maxSetsNamed {
			return append(warnings, "and more sets like these")
		}
		warnings = append(warnings, fmt.Sprintf("SandboxSet %s cannot follow this change, and keeps its sandboxes as they are: %s", set.Name, why))
	}
	return warnings
}

// whyNot returns why no sandboxes can be made for a set; empty if they can.
func whyNot(ctx context.Context, set *v1alpha1.SandboxSet, lookup podtemplate.Lookup) string {
	resolved, err := podtemplate.ResolveSet(ctx, set, lookup)
	if err != nil {
		return strings.TrimPrefix(err.Error(), fmt.Sprintf("SandboxSet %s/%s: ", set.Namespace, set.Name))
	}
	errs := validation.ValidatePodTemplate(resolved.Template, field.NewPath("template"))
	errs = append(errs, validation.ValidateMounted(resolved.Template, set.Spec.VolumeClaimTemplates, claimsPath)...)
	if len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	return ""
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
