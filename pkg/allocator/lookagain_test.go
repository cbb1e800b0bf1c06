// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// TestListsWakeWaitingClaims: the watch wakes no claim for what a list has shown already.
func TestListsWakeWaitingClaims(t *testing.T) {
	tests := map[string]struct {
		listed []*v1alpha1.SandboxSet
		want   bool
	}{
		"the same":           {listed: []*v1alpha1.SandboxSet{setOf("a", "py"), setOf("b", "go")}},
		"a new set":          {listed: []*v1alpha1.SandboxSet{setOf("a", "py"), setOf("b", "go"), setOf("c", "py")}, want: true},
		"a set of another":   {listed: []*v1alpha1.SandboxSet{setOf("a", "py"), setOf("b", "go"), setOf("c", "go")}},
		"another reference":  {listed: []*v1alpha1.SandboxSet{setOf("a", "py"), setOf("b", "py", atVersion(12))}, want: true},
		"a patch":            {listed: []*v1alpha1.SandboxSet{setOf("a", "py", patched, atVersion(12)), setOf("b", "go")}, want: true},
		"a set that is gone": {listed: []*v1alpha1.SandboxSet{setOf("b", "go")}, want: true},
		"more replicas": {listed: []*v1alpha1.SandboxSet{setOf("b", "go"),
			setOf("a", "py", atVersion(12), func(s *v1alpha1.SandboxSet) { s.Spec.Replicas = new(int32(9)) })}, want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, setOf("a", "py"), setOf("b", "go"))
			d.nextAttempt(warm(1))
			d.woken()
			d.sets, d.asOf = tc.listed, 12
			if err := d.stock.ReadSets(t.Context(), "ns"); err != nil {
				t.Fatal(err)
			}
			if got := len(d.woken()) > 0; got != tc.want {
				t.Errorf("woken: %t, want %t", got, tc.want)
			}
			for _, set := range tc.listed {
				d.Feeds.SetChanged(set)
			}
			if len(d.woken()) > 0 && !tc.want {
				t.Error("the watch wakes it with an old event")
			}
		})
	}
}

// TestNextRevisionWakesStuckClaims: a claim that nothing can be made for looks again when its
// set has another revision to make it from. Without a patch the current revision is the
// template, and tells nothing.
func TestNextRevisionWakesStuckClaims(t *testing.T) {
	at := func(revision string, version int) *v1alpha1.SandboxSet {
		return setOf("a", "py", atVersion(version), func(s *v1alpha1.SandboxSet) {
			s.Status.CurrentRevision, s.Status.UpdateRevision = "py", revision
		})
	}
	d := newDesk(t, at("one", 5))
	next := d.nextAttempt(nil) // its template is missing
	d.finisher.unfinished.of(next.state.Claim.UID).recordPlan(&next.state, d.planned(next))
	d.woken()
	d.Feeds.SetChanged(at("one", 6))
	if got := d.woken(); len(got) > 0 {
		t.Errorf("a status that changes nothing wakes %v", got)
	}
	d.Feeds.SetChanged(at("two", 7))
	if len(d.woken()) == 0 {
		t.Error("continues waiting")
	}
}

// TestMissingTemplateSparesThePool: candidates whose template is missing come back.
func TestMissingTemplateSparesThePool(t *testing.T) {
	set := setOf("a", "py")
	back := map[string]func(*desk){
		"the template is changed": func(d *desk) { d.Feeds.TemplateChanged(d.shelf.templates["py-"+pods]) },
		"all templates are":       func(d *desk) { d.Feeds.TemplatesListed(nil, 10) },
		"a circle is broken":      func(d *desk) { d.Feeds.TemplateChanged(d.shelf.templates["py-"+pods]) },
		"the set changes":         func(d *desk) { d.Feeds.SetChanged(setOf("a", "py", atVersion(10))) },
		"no event comes":          func(d *desk) { d.clock.Step(6 * time.Second) },
	}
	for name, event := range back {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, set)
			d.stocks("one", set, pods)
			next := d.nextAttempt(warm(1))
			p := d.planned(next)
			if len(p.Bound) != 0 || d.left("a") != 0 || !d.stock.HasSuspended(poolNamed("a")) {
				t.Fatalf("binds %d, left %d", len(p.Bound), d.left("a"))
			}
			if again := d.looksAgain(next, p); again < time.Second || again > 6*time.Second {
				t.Errorf("looks again after %s", again)
			}
			if p = d.planned(next); len(p.Bound) != 0 {
				t.Error("looks again at once")
			}
			d.shelf.templates["py-"+pods] = templateOfPod("py-" + pods)
			event(d)
			if p = d.planned(next); len(p.Bound) != 1 {
				t.Errorf("binds %d of one that came back", len(p.Bound))
			}
			if d.stock.HasSuspended(poolNamed("a")) || !next.finder.reservation.lookBackoff.Until.IsZero() {
				t.Error("continues looking")
			}
		})
	}
	t.Run("another pool's set changes", func(t *testing.T) {
		d := newDesk(t, set)
		d.stocks("one", set, pods)
		d.planned(d.nextAttempt(warm(1)))
		d.Feeds.SetChanged(setOf("b", "py"))
		d.Feeds.TemplateChanged(&v1alpha1.SandboxTemplate{})
		if d.left("a") != 0 {
			t.Error("comes back")
		}
	})
	t.Run("a new claim looks itself", func(t *testing.T) {
		d := newDesk(t, set)
		d.stocks("one", set, pods)
		d.planned(d.newAttempt(warm(1)))
		d.shelf.templates["py-"+pods] = templateOfPod("py-" + pods)
		fails := func(c *v1alpha1.SandboxClaim) { warm(1)(c); c.Spec.OnShortage = v1alpha1.ShortageFail }
		if p := d.planned(d.newAttempt(fails)); len(p.Bound) != 1 {
			t.Errorf("binds %d of one that came back", len(p.Bound))
		}
	})
	t.Run("it is what comes out of the set", func(t *testing.T) {
		d := newDesk(t, set)
		d.shelf.templates["py"] = templateOfPod("py")
		revision, err := podtemplate.SetRevision(set, podtemplate.Inline(podOf()))
		if err != nil {
			t.Fatal(err)
		}
		d.stocks("one", set, revision)
		d.stocks("old", set, "other")
		if p := d.planned(d.nextAttempt(warm(2))); len(p.Bound) != 1 || p.Bound[0].Name != "one" {
			t.Errorf("binds %v, want the one of this revision", p.Bound)
		}
	})
	t.Run("the cluster is not asked for it in the call", func(t *testing.T) {
		cluster := setOf("a", "", func(s *v1alpha1.SandboxSet) {
			s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Kind: v1alpha1.TemplateKindPodTemplate, Name: "cluster"}
		})
		d := newDesk(t, cluster)
		d.stocks("one", cluster, pods)
		p := d.planned(d.nextAttempt(func(c *v1alpha1.SandboxClaim) { warm(1)(c); c.Spec.SandboxTemplateRef, c.Spec.TemplateName = nil, "a" }))
		if len(p.Bound) != 0 || d.asked != 0 || !d.stock.HasSuspended(poolNamed("a")) {
			t.Errorf("binds %d, asked %d times", len(p.Bound), d.asked)
		}
	})
	t.Run("news while it looks", func(t *testing.T) {
		d := newDesk(t, set)
		d.stocks("one", set, pods)
		d.shelf.looked = func() {
			d.shelf.looked = nil
			d.shelf.templates["py-"+pods] = templateOfPod("py-" + pods)
			d.Feeds.TemplateChanged(d.shelf.templates["py-"+pods])
		}
		if p := d.planned(d.nextAttempt(warm(1))); len(p.Bound) != 1 || d.stock.HasSuspended(poolNamed("a")) {
			t.Errorf("binds %d, suspended although the template has come", len(p.Bound))
		}
	})
}

// TestUnreadableTemplate: a claim continues, and ends, while the cluster cannot be
// asked for the template of fresh sandboxes.
func TestUnreadableTemplate(t *testing.T) {
	set := setOf("a", "py")
	fresh := func(c *v1alpha1.SandboxClaim) { warm(2)(c); orFresh(c) }
	prepare := func(t *testing.T) *desk {
		d := newDesk(t, set)
		d.podTemplate = errDown
		d.shelf.templates["py-"+pods], d.shelf.templates["py"] = templateOfPod("py-"+pods), ofCluster()
		d.stocks("one", set, pods)
		return d
	}
	for name, isNew := range map[string]bool{"a new claim": true, "one that continues": false} {
		t.Run(name, func(t *testing.T) {
			d := prepare(t)
			next := d.attemptOf(isNew, fresh)
			p := d.planned(next)
			if len(p.Bound) != 1 || !errors.Is(p.Broken, errDown) || p.Wants.Need != 1 {
				t.Errorf("binds %d, wants %+v, broken %v", len(p.Bound), p.Wants, p.Broken)
			}
			if again := d.looksAgain(next, p); again < time.Second || again > 6*time.Second {
				t.Errorf("looks again after %s", again)
			}
		})
	}
	t.Run("one that would rather fail", func(t *testing.T) {
		d := prepare(t)
		first := d.newAttempt(func(c *v1alpha1.SandboxClaim) { fresh(c); c.Spec.OnShortage = v1alpha1.ShortageFail })
		if _, err := first.plan(t.Context()); !errors.Is(err, errDown) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("one whose time is up", func(t *testing.T) {
		d := prepare(t)
		next := d.nextAttempt(fresh)
		d.clock.Step(time.Hour)
		p := d.planned(next)
		if !p.Ends() || !strings.Contains(p.Claim.Status.Message, "cannot be read now") ||
			strings.Contains(p.Claim.Status.Message, errDown.Error()) {
			t.Errorf("status %+v", p.Claim.Status)
		}
	})
	t.Run("the looks become rarer", func(t *testing.T) {
		d := prepare(t)
		next := d.nextAttempt(func(c *v1alpha1.SandboxClaim) { warm(9)(c); orFresh(c) })
		var looks []time.Duration
		for range 12 {
			d.planned(next)
			looks = append(looks, next.finder.reservation.lookBackoff.Until.Sub(d.clock.Now()))
			d.clock.Step(looks[len(looks)-1])
		}
		if first, last := looks[0], looks[len(looks)-1]; first < 2*time.Second || first > 2400*time.Millisecond || last < 5*time.Second || last > 6*time.Second {
			t.Errorf("it looks again after %v", looks)
		}
	})
}

// TestSetMadeAMomentAgo: the set of the name that is asked for comes before those of
// the template of that name, also if the watch has not reported it yet.
func TestSetMadeAMomentAgo(t *testing.T) {
	d := newDesk(t, setOf("a", "pool"))
	d.set = setOf("pool", "", atVersion(12))
	claim := claimOf(nil) // templateName pool
	e, err := d.stock.Eligible(t.Context(), claim, true)
	if err != nil || e.MakeFrom == nil || e.MakeFrom.Name != "pool" || !slices.Equal(candidates.SourcesOf(&e), poolNamed("pool")) {
		t.Errorf("eligible %+v, error %v", e, err)
	}
	d.Feeds.SetDeleted(setOf("pool", "", atVersion(13)))
	if e, err = d.stock.Eligible(t.Context(), claim, true); err != nil || e.MakeFrom == nil || e.MakeFrom.Name != "a" {
		t.Errorf("with an old read of one that is gone: eligible %+v, error %v", e, err)
	}
}

// TestPartsAreForOthers: what is only a part of all or nothing goes back, for claims that
// it is enough for.
func TestPartsAreForOthers(t *testing.T) {
	set := setOf("a", "py")
	d := newDesk(t, set)
	next := d.holding(set)
	if p := d.planned(next); len(next.finder.reservation.taken) != 0 || d.left("a") != 1 || p.Wants.Need != 2 {
		t.Errorf("holds %d, left %d, wants %+v", len(next.finder.reservation.taken), d.left("a"), p.Wants)
	}
}
