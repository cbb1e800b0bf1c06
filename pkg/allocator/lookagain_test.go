// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

var errDown = errors.New("it is away")

// shelf answers the reads of an allocator.
type shelf struct {
	Store
	sandboxes   map[string]*v1alpha1.Sandbox
	templates   map[string]*v1alpha1.SandboxTemplate
	sets        []*v1alpha1.SandboxSet
	asOf        uint64
	podTemplate error
	set         *v1alpha1.SandboxSet
	// now are the templates in etcd, where that is ahead.
	now map[string]*v1alpha1.SandboxTemplate
	// asked counts questions to the cluster, which has inCluster.
	asked     int
	inCluster *corev1.PodTemplate
	// read counts reads of templates, of which unreadable cannot be read.
	read       map[string]int
	unreadable string
	begin      func() Txn
}

func (s *shelf) Sandbox(_ context.Context, _, name string) (*v1alpha1.Sandbox, error) {
	return s.sandboxes[name], nil
}

func (s *shelf) SandboxTemplate(_ context.Context, _, name string) (*v1alpha1.SandboxTemplate, error) {
	if s.read != nil {
		s.read[name]++
	}
	if name != "" && name == s.unreadable {
		return nil, errDown
	}
	return s.templates[name], nil
}

func (s *shelf) PodTemplate(context.Context, string, string) (*corev1.PodTemplate, error) {
	s.asked++
	if s.podTemplate != nil {
		return nil, s.podTemplate
	}
	return s.inCluster, nil
}

func (s *shelf) TemplatesNow() podtemplate.Lookup {
	if s.now == nil {
		return s
	}
	return &shelf{templates: s.now}
}

func (s *shelf) Begin() Txn { return s.begin() }

func (s *shelf) Set(context.Context, string, string) (*v1alpha1.SandboxSet, error) {
	return s.set, nil
}

func (s *shelf) Sets(context.Context, string) ([]*v1alpha1.SandboxSet, uint64, error) {
	return s.sets, s.asOf, nil
}

func (s *shelf) PoolSandboxes(context.Context, string, string) ([]*v1alpha1.Sandbox, uint64, error) {
	return nil, 0, nil
}

// desk is an allocator over a shelf, with claims that are drafted by hand.
type desk struct {
	*testing.T
	*shelf
	*Allocator
	clock *clocktesting.FakeClock
}

func newDesk(t *testing.T, sets ...*v1alpha1.SandboxSet) *desk {
	store := &shelf{sandboxes: map[string]*v1alpha1.Sandbox{}, templates: map[string]*v1alpha1.SandboxTemplate{}, sets: sets, asOf: 9, read: map[string]int{}}
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	a := New(Options{Store: store, Clock: clock})
	a.SetListed(sets, 9)
	return &desk{t, store, a, clock}
}

// stocks adds an available sandbox of a set's revision.
func (d *desk) stocks(name string, set *v1alpha1.SandboxSet, revision string) {
	sb, err := podtemplate.NewSandbox(set, revision, podtemplate.Inline(podOf()))
	if err != nil {
		d.Fatal(err)
	}
	sb.Name, sb.UID, sb.ResourceVersion = name, types.UID(name), "7"
	sb.Labels[v1alpha1.LabelSandboxClaimed] = v1alpha1.ClaimedFalse
	sb.Status = v1alpha1.SandboxStatus{
		Phase: v1alpha1.SandboxRunning, PodInfo: v1alpha1.PodInfo{PodIP: "10.0.0.1"},
		Conditions: []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue}},
	}
	d.sandboxes[name] = sb
	before := d.queue.stock(from(set.Name))
	d.feed.SandboxChanged(sb)
	if d.queue.stock(from(set.Name)) != before+1 {
		d.Fatalf("%s is no candidate", name)
	}
}

// job is the one of a claim that was stored a second ago, or with at 0 of a new one.
func (d *desk) job(at int64, change func(*v1alpha1.SandboxClaim)) *job {
	now := d.clock.Now()
	j, err := d.newJob(claimOf(change), now.Add(-time.Second))
	if err != nil {
		d.Fatal(err)
	}
	if j.at = at; at != 0 {
		begin(j.claim, j.start)
		j.publish()
		d.jobs.byUID[j.claim.UID] = j
	}
	return j
}

// holding is a job that takes two or none, and holds the one sandbox that a set has.
func (d *desk) holding(set *v1alpha1.SandboxSet) *job {
	d.Helper()
	revision := set.Name + "-abc"
	d.shelf.templates[revision] = templateOfPod(revision)
	d.stocks("one", set, "abc")
	j := d.job(5, func(c *v1alpha1.SandboxClaim) { warm(2)(c); c.Spec.Allocation = v1alpha1.AllocationAllOrNothing })
	b, err := j.prepare(d.Context(), d.queue.take(from(set.Name), 1, false)[0])
	if err != nil || b == nil {
		d.Fatal(b, err)
	}
	j.held = append(j.held, *b)
	return j
}

func (d *desk) draft(j *job) *draft {
	d.Helper()
	drafted, err := j.draft(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	return drafted
}

func podOf() *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"main"}]}}`)}
}

func templateOfPod(name string) *v1alpha1.SandboxTemplate {
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "6"}}
	template.Spec.Template = podOf()
	return template
}

func warm(replicas int32) func(*v1alpha1.SandboxClaim) {
	return func(c *v1alpha1.SandboxClaim) {
		c.Spec.TemplateName = ""
		c.Spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{Name: "py"}
		c.Spec.Replicas, c.Spec.CreateOnNoStock = &replicas, new(false)
	}
}

func orFresh(c *v1alpha1.SandboxClaim) { c.Spec.CreateOnNoStock = nil }

// TestListsTellWaitingClaims: the watch finds no news any more in what a list told.
func TestListsTellWaitingClaims(t *testing.T) {
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
			j := d.job(5, warm(1))
			d.sets, d.asOf = tc.listed, 12
			if err := d.refreshSets(t.Context(), "ns"); err != nil {
				t.Fatal(err)
			}
			if got := len(j.wake) > 0; got != tc.want {
				t.Errorf("woken: %t, want %t", got, tc.want)
			}
		})
	}
}

// TestMissingTemplateSparesThePool: candidates whose template is missing come back.
func TestMissingTemplateSparesThePool(t *testing.T) {
	set := setOf("a", "py")
	back := map[string]func(*desk){
		"the template is told of": func(d *desk) { d.TemplateChanged(d.shelf.templates["a-abc"]) },
		"all templates are":       func(d *desk) { d.TemplateListed(nil, 10) },
		"the set changes":         func(d *desk) { d.SetChanged(setOf("a", "py", atVersion(10))) },
		"nobody tells":            func(d *desk) { d.clock.Step(6 * time.Second) },
	}
	for name, tell := range back {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, set)
			d.stocks("one", set, "abc")
			j := d.job(5, warm(1))
			if drafted := d.draft(j); len(drafted.binds) != 0 || d.queue.stock(from("a")) != 0 {
				t.Fatalf("binds %d, left %d", len(drafted.binds), d.queue.stock(from("a")))
			}
			if next := j.untilNext(); next < time.Second || next > 6*time.Second {
				t.Errorf("looks again after %s", next)
			}
			d.shelf.templates["a-abc"] = templateOfPod("a-abc")
			tell(d)
			if drafted := d.draft(j); len(drafted.binds) != 1 {
				t.Errorf("binds %d of one that came back", len(drafted.binds))
			}
		})
	}
	t.Run("it is what comes out of the set", func(t *testing.T) {
		d := newDesk(t, set)
		d.shelf.templates["py"] = templateOfPod("py")
		revision, err := podtemplate.SetRevision(set, podtemplate.Inline(podOf()))
		if err != nil {
			t.Fatal(err)
		}
		d.stocks("one", set, revision)
		d.stocks("old", set, "other")
		if drafted := d.draft(d.job(5, warm(2))); len(drafted.binds) != 1 || drafted.binds[0].sandbox.Name != "one" {
			t.Errorf("binds %v, want the one of this revision", drafted.binds)
		}
	})
	t.Run("the cluster is not asked for it in the call", func(t *testing.T) {
		cluster := setOf("a", "", func(s *v1alpha1.SandboxSet) {
			s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Kind: v1alpha1.TemplateKindPodTemplate, Name: "cluster"}
		})
		d := newDesk(t, cluster)
		d.stocks("one", cluster, "abc")
		j := d.job(5, func(c *v1alpha1.SandboxClaim) { warm(1)(c); c.Spec.SandboxTemplateRef, c.Spec.TemplateName = nil, "a" })
		if drafted := d.draft(j); len(drafted.binds) != 0 || d.asked != 0 || !d.aside.has(from("a")) {
			t.Errorf("binds %d, asked %d times", len(drafted.binds), d.asked)
		}
	})
	t.Run("news while it looks", func(t *testing.T) {
		d := newDesk(t, set)
		d.stocks("one", set, "abc")
		asOf := d.aside.asOf()
		taken := d.queue.take(from("a"), 1, false)
		d.TemplateChanged(templateOfPod("a-abc"))
		if d.aside.put(taken[0], asOf) {
			t.Error("put aside although the template has come")
		}
	})
}

// TestUnreadableTemplate: a claim goes on, and ends, while the cluster cannot be
// asked for the template of fresh sandboxes.
func TestUnreadableTemplate(t *testing.T) {
	set := setOf("a", "py")
	fresh := func(c *v1alpha1.SandboxClaim) { warm(2)(c); orFresh(c) }
	prepare := func(t *testing.T) *desk {
		d := newDesk(t, set)
		d.podTemplate = errDown
		d.shelf.templates["a-abc"] = templateOfPod("a-abc")
		d.shelf.templates["py"] = templateOfPod("py")
		d.shelf.templates["py"].Spec.Template = nil
		d.shelf.templates["py"].Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Kind: v1alpha1.TemplateKindPodTemplate, Name: "cluster"}
		d.stocks("one", set, "abc")
		return d
	}
	for name, at := range map[string]int64{"a new claim": 0, "one that goes on": 5} {
		t.Run(name, func(t *testing.T) {
			d := prepare(t)
			j := d.job(at, fresh)
			drafted := d.draft(j)
			if len(drafted.binds) != 1 || !errors.Is(drafted.broken, errDown) || drafted.missing != 1 {
				t.Errorf("binds %d, misses %d, broken %v", len(drafted.binds), drafted.missing, drafted.broken)
			}
			if next := j.untilNext(); next < time.Second || next > 6*time.Second {
				t.Errorf("looks again after %s", next)
			}
		})
	}
	t.Run("one that would rather fail", func(t *testing.T) {
		d := prepare(t)
		j := d.job(0, func(c *v1alpha1.SandboxClaim) { fresh(c); c.Spec.OnShortage = v1alpha1.ShortageFail })
		if _, err := j.draft(t.Context()); !errors.Is(err, errDown) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("one whose time is up", func(t *testing.T) {
		d := prepare(t)
		j := d.job(5, fresh)
		d.clock.Step(time.Hour)
		drafted := d.draft(j)
		if drafted.claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted || !strings.Contains(drafted.claim.Status.Message, errDown.Error()) {
			t.Errorf("status %+v", drafted.claim.Status)
		}
	})
	t.Run("the looks become rarer", func(t *testing.T) {
		d := prepare(t)
		j := d.job(5, fresh)
		for range 10 {
			d.draft(j)
			d.clock.Step(j.untilNext())
		}
		d.draft(j)
		if next := j.untilNext(); next < 5*time.Second || next > 6*time.Second {
			t.Errorf("in the end it looks again after %s", next)
		}
	})
}

// TestSetMadeAMomentAgo: the set of the name that is asked for comes before those of
// the template of that name, also if the watch has not told of it yet.
func TestSetMadeAMomentAgo(t *testing.T) {
	d := newDesk(t, setOf("a", "pool"))
	d.set = setOf("pool", "", atVersion(12))
	claim := claimOf(nil) // templateName pool
	s, err := d.supply(t.Context(), claim, true)
	if err != nil || s.set == nil || s.set.Name != "pool" || len(s.sources) != 1 {
		t.Errorf("supply %+v, error %v", s, err)
	}
	d.SetDeleted(setOf("pool", "", atVersion(13)))
	if s, err = d.supply(t.Context(), claim, true); err != nil || s.set == nil || s.set.Name != "a" {
		t.Errorf("with an old read of one that is gone: supply %+v, error %v", s, err)
	}
}

// TestHeldGoesBackWithoutSupply: what a claim holds until it has all is for others
// once nothing serves it any more.
func TestHeldGoesBackWithoutSupply(t *testing.T) {
	set := setOf("a", "py")
	d := newDesk(t, set)
	j := d.holding(set)
	d.draft(j)
	if len(j.held) != 1 {
		t.Fatalf("holds %d while its pool is there", len(j.held))
	}
	d.SetDeleted(setOf("a", "py", atVersion(12)))
	if drafted := d.draft(j); drafted.supply.problem == nil || len(j.held) != 0 || d.queue.stock(from("a")) != 1 {
		t.Errorf("holds %d, problem %v", len(j.held), drafted.supply.problem)
	}
}
