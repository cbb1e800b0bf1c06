// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// WarnOfDeletion warns of the sets that use templates of a namespace which are deleted,
// whose names are sorted. Of one template those count as well that use it through others.
func (v *Validator) WarnOfDeletion(ctx context.Context, namespace string, templates []string) []string {
	sets, err := v.Sets(ctx, namespace)
	if err != nil || len(templates) == 0 {
		return nil // the deletion is done, and what it means shows on the sets
	}
	uses := func(set *v1alpha1.SandboxSet) bool {
		_, used := slices.BinarySearch(templates, v1alpha1.SandboxTemplateOf(set))
		return used
	}
	what := "templates that are deleted are"
	if len(templates) == 1 {
		what = "SandboxTemplate " + templates[0] + " is"
		j := newJudge(v.Lookup, &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: templates[0]}})
		uses = func(set *v1alpha1.SandboxSet) bool { return j.uses(ctx, set) }
	}
	var users []string
	for _, set := range sets {
		if set.Spec.TemplateRef != nil && set.Spec.Template == nil && set.DeletionTimestamp == nil && ctx.Err() == nil && uses(set) {
			users = append(users, set.Name)
		}
	}
	if len(users) == 0 {
		return nil
	}
	slices.Sort(users)
	named, more := users[:min(len(users), maxSetsNamed)], ""
	if len(users) > len(named) {
		more = fmt.Sprintf(" and %d more", len(users)-len(named))
	}
	return []string{fmt.Sprintf("%s in use: these %ss continue with what they have of it, and cannot change until it exists again: %s%s",
		what, base.SetKind(ctx), strings.Join(named, ", "), more)}
}
