// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

func updates(kind v1alpha1.SandboxSetUpdateType) func(*v1alpha1.SandboxSet) {
	return func(set *v1alpha1.SandboxSet) { set.Spec.UpdateStrategy.Type = kind }
}

// stockedFrom is a desk with a set, its template py, and one sandbox made from that.
func stockedFrom(t *testing.T, set *v1alpha1.SandboxSet, template *runtime.RawExtension) *desk {
	d := newDesk(t, set)
	py := templateOfPod("py")
	py.Spec.Template = template
	d.shelf.templates["py"] = py
	revision, err := podtemplate.SetRevision(set, podtemplate.Inline(template))
	if err != nil {
		t.Fatal(err)
	}
	d.shelf.templates["py-"+revision] = podtemplate.NewHolder(set, revision, podtemplate.Inline(template))
	d.stocks("one", set, revision)
	return d
}

// becomes gives the template py another content. No watch has reported it.
func (d *desk) becomes(raw string) {
	py := templateOfPod("py")
	py.ResourceVersion, py.Spec.Template = "8", &runtime.RawExtension{Raw: []byte(raw)}
	d.shelf.templates["py"] = py
}

// TestStaleCandidates: a set that recreates hands out nothing but what its template is now.
func TestStaleCandidates(t *testing.T) {
	const (
		same     = `{"spec":{"containers":[{"name":"main"}]}}`
		reworded = `{"spec": {"containers": [{"name": "main"}]}}`
		labelled = `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"main"}]}}`
		fixed    = `{"spec":{"containers":[{"name":"main","image":"fixed"}]}}`
	)
	tests := map[string]struct {
		kind v1alpha1.SandboxSetUpdateType
		now  string // "" is no template
		want int
	}{
		"as it was":           {v1alpha1.SetUpdateRecreate, same, 1},
		"other white space":   {v1alpha1.SetUpdateRecreate, reworded, 1},
		"metadata alone":      {v1alpha1.SetUpdateRecreate, labelled, 1},
		"another image":       {v1alpha1.SetUpdateRecreate, fixed, 0},
		"the template is off": {v1alpha1.SetUpdateRecreate, "", 1},
		"OnReplenish":         {v1alpha1.SetUpdateOnReplenish, fixed, 1},
		"RollingUpdate":       {v1alpha1.SetUpdateRolling, fixed, 1},
		"the default":         {"", fixed, 1},
	}
	for name, test := range tests {
		for _, isNew := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				d := stockedFrom(t, setOf("a", "py", updates(test.kind)), podOf())
				if d.becomes(test.now); test.now == "" {
					delete(d.shelf.templates, "py")
				}
				if p := d.planned(d.attemptOf(isNew, warm(1))); len(p.Bound) != test.want {
					t.Errorf("binds %d, want %d", len(p.Bound), test.want)
				}
			})
		}
	}
}

// TestStaleCandidatesWait: they are not looked at again without news, nor counted, and are
// taken when the template is theirs again.
func TestStaleCandidatesWait(t *testing.T) {
	d := stockedFrom(t, setOf("a", "py", updates(v1alpha1.SetUpdateRecreate)), podOf())
	d.becomes(`{"spec":{"containers":[{"name":"main","image":"fixed"}]}}`)
	next := d.nextAttempt(warm(1))
	p := d.planned(next)
	if len(p.Bound) != 0 || p.Wants.Need != 1 || d.left("a") != 0 || !d.stock.HasSuspended(poolNamed("a")) {
		t.Fatalf("binds %d, wants %d, left %d", len(p.Bound), p.Wants.Need, d.left("a"))
	}
	if again := d.looksAgain(next, p); again < time.Second {
		t.Errorf("looks again after %s", again)
	}
	before := d.shelf.read["py"]
	if p = d.planned(next); len(p.Bound) != 0 || d.shelf.read["py"] != before {
		t.Errorf("binds %d, and looks at the template %d times more", len(p.Bound), d.shelf.read["py"]-before)
	}
	d.shelf.templates["py"] = templateOfPod("py")
	d.Feeds.TemplateChanged(d.shelf.templates["py"])
	if p = d.planned(next); len(p.Bound) != 1 {
		t.Errorf("binds %d of one that is of the template again", len(p.Bound))
	}
}

// TestStaleCandidatesInHand: what was taken is given back if the template changes before it
// is bound.
func TestStaleCandidatesInHand(t *testing.T) {
	d := stockedFrom(t, setOf("a", "py", updates(v1alpha1.SetUpdateRecreate)), podOf())
	next := d.nextAttempt(warm(1))
	if p := d.planned(next); len(p.Bound) != 1 {
		t.Fatalf("binds %d", len(p.Bound))
	}
	d.becomes(`{"spec":{"containers":[{"name":"main","image":"fixed"}]}}`)
	if p := d.planned(next); len(p.Bound) != 0 || len(next.finder.reservation.taken) != 0 {
		t.Errorf("binds %d, holds %d", len(p.Bound), len(next.finder.reservation.taken))
	}
}

// TestStaleCandidatesStartCold: a claim that may have one made has one made.
func TestStaleCandidatesStartCold(t *testing.T) {
	d := stockedFrom(t, setOf("a", "py", updates(v1alpha1.SetUpdateRecreate)), podOf())
	d.becomes(`{"spec":{"containers":[{"name":"main","image":"fixed"}]}}`)
	p := d.planned(d.newAttempt(func(c *v1alpha1.SandboxClaim) { warm(1)(c); orFresh(c) }))
	if len(p.Bound) != 0 || len(p.Made) != 1 {
		t.Errorf("binds %d and makes %d", len(p.Bound), len(p.Made))
	}
}

// TestRevisionsAreLookedAtOnce: many candidates of one revision take one look.
func TestRevisionsAreLookedAtOnce(t *testing.T) {
	looks := func(kind v1alpha1.SandboxSetUpdateType) int {
		set := setOf("a", "py", updates(kind))
		d := stockedFrom(t, set, podOf())
		revision := d.shelf.sandboxes["one"].Labels[v1alpha1.LabelTemplateHash]
		for _, name := range []string{"two", "three", "four"} {
			d.stocks(name, set, revision)
		}
		if p := d.planned(d.newAttempt(warm(4))); len(p.Bound) != 4 {
			t.Fatalf("binds %d", len(p.Bound))
		}
		return d.shelf.read["py"]
	}
	if more := looks(v1alpha1.SetUpdateRecreate) - looks(v1alpha1.SetUpdateRolling); more != 1 {
		t.Errorf("%d more looks at the template, want 1", more)
	}
}
