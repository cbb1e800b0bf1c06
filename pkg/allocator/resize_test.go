// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/inplace"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// TestCandidatesAreRaised: or not, for a reason that the status has, or the claim tries again.
func TestCandidatesAreRaised(t *testing.T) {
	large := func() *v1alpha1.SandboxTemplate {
		template := templateOfPod("py")
		template.Spec.Template = withCPU("4")
		return template
	}
	noGood := func(set *v1alpha1.SandboxSet) {
		set.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.SetConditionTemplateResolved, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidTemplate,
			Message: "no good", ObservedGeneration: set.Generation,
		}}
	}
	inCluster := large()
	inCluster.Spec.Template, inCluster.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Kind: v1alpha1.TemplateKindPodTemplate, Name: "cluster"}
	twoCores := revisionOf(withCPU("2"))
	tests := map[string]struct {
		set      *v1alpha1.SandboxSet
		template *v1alpha1.SandboxTemplate
		// unreadable is a template that cannot be read.
		unreadable string
		// resize, or else what the status says.
		resize   bool
		reported string
		err      error
	}{
		"smaller by a patch":      {set: setOf("a", "py", smaller), template: large(), resize: true},
		"smaller by an old one":   {set: setOf("a", "py", atRevision("def")), template: large(), resize: true},
		"what it is to be":        {set: setOf("a", "py", atRevision(twoCores)), template: large()},
		"not about size":          {set: setOf("a", "py", patched)},
		"the template is gone":    {set: setOf("a", "py", smaller), reported: "SandboxTemplate py: not found"},
		"the template is no good": {set: setOf("a", "py", smaller, noGood), template: large(), reported: "no good"},
		"the cluster is away":     {set: setOf("a", "py", smaller), template: inCluster, reported: "the cluster has not answered"},
		"the store is away":       {set: setOf("a", "py", smaller), unreadable: "py", err: errDown},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, tc.set)
			d.podTemplate, d.unreadable = errDown, tc.unreadable
			d.runs()
			holder := templateOfPod(podtemplate.RevisionName(tc.set, twoCores))
			holder.Spec.Template = withCPU("2")
			d.shelf.templates[holder.Name] = holder
			d.shelf.templates["py"] = tc.template
			d.stocks("one", tc.set, twoCores)
			p, err := d.newAttempt(warm(1)).plan(t.Context())
			if tc.err != nil {
				if !errors.Is(err, tc.err) || d.left("a") != 1 {
					t.Errorf("error %v, left %d", err, d.left("a"))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			sb := p.Bound[0]
			if inplace.InProgress(sb) != tc.resize || plan.IsStarting(sb) != tc.resize || strings.Contains(string(sb.Spec.Template.Raw), `"cpu":"4"`) != tc.resize {
				t.Errorf("bound as %s, %+v", sb.Spec.Template.Raw, sb.Status.Conditions)
			}
			if update := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate); !tc.resize &&
				(update != nil) != (tc.reported != "") || tc.reported != "" && !strings.Contains(update.Message, tc.reported) {
				t.Errorf("says %+v, want %q", update, tc.reported)
			}
		})
	}
}

// TestLikeCandidatesAreRaisedOnce: sandboxes with templates of their own have the same
// one, unless a user changed it, and then they keep that.
func TestLikeCandidatesAreRaisedOnce(t *testing.T) {
	set := setOf("a", "py", smaller)
	d := newDesk(t, set)
	d.shelf.templates["py"] = templateOfPod("py")
	d.shelf.templates["py"].Spec.Template = withCPU("4")
	for _, name := range []string{"one", "own", "two"} {
		d.stocks(name, set, pods)
		d.sandboxes[name].Spec.TemplateRef, d.sandboxes[name].Spec.Template = nil, withCPU("2")
	}
	own := d.sandboxes["own"].Spec.Template
	own.Raw = []byte(strings.Replace(string(own.Raw), `"main"`, `"main","image":"mine"`, 1))
	p := d.planned(d.nextAttempt(warm(3)))
	if len(p.Bound) != 3 || d.read["py"] != 1 {
		t.Errorf("bound %d, read the template %d times", len(p.Bound), d.read["py"])
	}
	for _, sb := range p.Bound {
		got := string(sb.Spec.Template.Raw)
		if !inplace.InProgress(sb) || !strings.Contains(got, `"cpu":"4"`) || strings.Contains(got, "mine") != (sb.Name == "own") {
			t.Errorf("%s is bound as %s", sb.Name, got)
		}
	}
}
