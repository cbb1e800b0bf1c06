// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podresize"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

func withCPU(cpu string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"` + cpu + `"}}}]}}`)}
}

func TestRaisesAreRemembered(t *testing.T) {
	s := newSizes()
	raise := func(have, want string) raised { return s.raise(withCPU(have), withCPU(want)) }
	first := raise("2", "4")
	if !first.resize || string(first.template.Raw) != string(withCPU("4").Raw) {
		t.Errorf("raised to %s", first.template.Raw)
	}
	if again := raise("2", "4"); again.template != first.template || !again.resize {
		t.Error("worked out a second time")
	}
	for range 2 {
		if same := raise("4", "4"); same.resize || same.failed != nil || string(same.template.Raw) != string(withCPU("4").Raw) {
			t.Errorf("one that is as large as it is to be: %+v", same)
		}
	}
	if larger := raise("2", "8"); string(larger.template.Raw) != string(withCPU("8").Raw) {
		t.Errorf("another goal: %s", larger.template.Raw)
	}
	for range 2 {
		if bad := raise("2", "much"); bad.failed == nil || bad.resize || string(bad.template.Raw) != string(withCPU("2").Raw) {
			t.Errorf("a goal that is none: %+v", bad)
		}
	}
}

// smaller is a patch that makes sandboxes smaller.
func smaller(set *v1alpha1.SandboxSet) { set.Spec.Patch = withCPU("2") }

// atRevision is a set whose controller has made sandboxes of that revision from it.
func atRevision(revision string) func(*v1alpha1.SandboxSet) {
	return func(set *v1alpha1.SandboxSet) {
		set.Generation, set.Status.ObservedGeneration, set.Status.UpdateRevision = 3, 3, revision
	}
}

func behind(set *v1alpha1.SandboxSet) { set.Generation++ }

func TestWhoIsRaised(t *testing.T) {
	d := newDesk(t,
		setOf("plain", "py"), setOf("spot", "py", smaller), setOf("labelled", "py", patched), setOf("other", "go", smaller), setOf("inline", ""),
		setOf("rolled", "py", atRevision("abc")), setOf("rolling", "py", atRevision("def")),
		setOf("edited", "py", atRevision("abc"), behind), setOf("unmarked", "py", patched, atRevision("def")),
	)
	byRef := v1alpha1.SandboxClaimSpec{SandboxTemplateRef: &v1alpha1.SandboxClaimTemplateRef{Name: "py"}}
	byRefOne := *byRef.DeepCopy()
	byRefOne.WarmPool = "spot"
	tests := []struct {
		claim v1alpha1.SandboxClaimSpec
		pool  string
		want  bool
	}{
		{byRef, "spot", true},
		{byRefOne, "spot", true},
		{byRef, "plain", false},
		{byRef, "other", false},
		{byRef, "inline", false},
		{byRef, "labelled", false}, // the patch is not about size
		{byRef, "rolled", false},
		{byRef, "rolling", true}, // an older one may have had a patch
		{byRef, "edited", true},  // of which the controller has not heard
		{byRef, "unmarked", true},
		{byRef, "gone", false},
		{v1alpha1.SandboxClaimSpec{TemplateName: "py"}, "spot", true},
		{v1alpha1.SandboxClaimSpec{TemplateName: "spot"}, "spot", false},
	}
	for _, tc := range tests {
		claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: tc.claim}
		c := poolindex.Candidate{Pool: named(tc.pool), Revision: "abc"}
		for range 2 {
			if got := d.smallerSet(claim, c) != nil; got != tc.want {
				t.Errorf("%+v from %s: %v", tc.claim, tc.pool, got)
			}
		}
	}
	d.SetChanged(setOf("spot", "py", patched, behind, atVersion(12)))
	if d.smallerSet(&v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: byRef}, poolindex.Candidate{Pool: named("spot")}) != nil {
		t.Error("remembers a patch that was edited")
	}
}

// TestCandidatesAreRaised: or not, for a reason that is told, or the claim tries again.
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
	tests := map[string]struct {
		set      *v1alpha1.SandboxSet
		template *v1alpha1.SandboxTemplate
		// unreadable is a template that the store does not tell of.
		unreadable string
		// resize, or else what is told.
		resize bool
		told   string
		err    error
	}{
		"smaller by a patch":      {set: setOf("a", "py", smaller), template: large(), resize: true},
		"smaller by an old one":   {set: setOf("a", "py", atRevision("def")), template: large(), resize: true},
		"what it is to be":        {set: setOf("a", "py", atRevision("abc")), template: large()},
		"not about size":          {set: setOf("a", "py", patched)},
		"the template is gone":    {set: setOf("a", "py", smaller), told: "SandboxTemplate py: not found"},
		"the template is no good": {set: setOf("a", "py", smaller, noGood), template: large(), told: "no good"},
		"the cluster is away":     {set: setOf("a", "py", smaller), template: inCluster, told: "the cluster has not answered: " + errDown.Error()},
		"the store is away":       {set: setOf("a", "py", smaller), unreadable: "py", err: errDown},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, tc.set)
			d.podTemplate, d.unreadable = errDown, tc.unreadable
			d.jobs.ctx = t.Context()
			t.Cleanup(d.jobs.running.Wait)
			d.shelf.templates["a-abc"] = templateOfPod("a-abc")
			d.shelf.templates["a-abc"].Spec.Template = withCPU("2")
			d.shelf.templates["py"] = tc.template
			d.stocks("one", tc.set, "abc")
			drafted, err := d.job(0, warm(1)).draft(t.Context())
			if tc.err != nil {
				if !errors.Is(err, tc.err) || d.queue.stock(from("a")) != 1 {
					t.Errorf("error %v, left %d", err, d.queue.stock(from("a")))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			sb := drafted.binds[0].sandbox
			if podresize.InProgress(sb) != tc.resize || isStarting(sb) != tc.resize || strings.Contains(string(sb.Spec.Template.Raw), `"cpu":"4"`) != tc.resize {
				t.Errorf("bound as %s, %+v", sb.Spec.Template.Raw, sb.Status.Conditions)
			}
			if update := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate); !tc.resize &&
				(update != nil) != (tc.told != "") || tc.told != "" && !strings.Contains(update.Message, tc.told) {
				t.Errorf("says %+v, want %q", update, tc.told)
			}
		})
	}
}

// TestLikeCandidatesAreRaisedOnce: sandboxes with templates of their own have the same
// one, unless somebody changed it, and then they keep that.
func TestLikeCandidatesAreRaisedOnce(t *testing.T) {
	set := setOf("a", "py", smaller)
	d := newDesk(t, set)
	d.shelf.templates["py"] = templateOfPod("py")
	d.shelf.templates["py"].Spec.Template = withCPU("4")
	for _, name := range []string{"one", "own", "two"} {
		d.stocks(name, set, "abc")
		d.sandboxes[name].Spec.TemplateRef, d.sandboxes[name].Spec.Template = nil, withCPU("2")
	}
	own := d.sandboxes["own"].Spec.Template
	own.Raw = []byte(strings.Replace(string(own.Raw), `"main"`, `"main","image":"mine"`, 1))
	drafted := d.draft(d.job(5, warm(3)))
	if len(drafted.binds) != 3 || d.read["py"] != 1 {
		t.Errorf("bound %d, read the template %d times", len(drafted.binds), d.read["py"])
	}
	for _, b := range drafted.binds {
		got := string(b.sandbox.Spec.Template.Raw)
		if !podresize.InProgress(b.sandbox) || !strings.Contains(got, `"cpu":"4"`) || strings.Contains(got, "mine") != (b.sandbox.Name == "own") {
			t.Errorf("%s is bound as %s", b.sandbox.Name, got)
		}
	}
}

func TestResizingLeavesSomethingToObserve(t *testing.T) {
	b, err := newBinding(claimOf(nil))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		raised   raised
		observed int64
		want     []string
	}{
		"resized": {raised{resize: true}, 3, []string{
			"Ready False InplaceUpdating 4: inplace update is incompleted", "InplaceUpdate False InplaceUpdating 4: inplace update is incompleted",
		}},
		"as it is": {raised{}, 4, []string{"Ready True PodReady 4: "}},
		"nobody knows": {raised{failed: errors.New("no template")}, 4, []string{
			"Ready True PodReady 4: ", "InplaceUpdate False Failed 4: in-place resource resize failed: no template",
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			sb := pooled.DeepCopy()
			sb.Generation = 3
			sb.Status = v1alpha1.SandboxStatus{ObservedGeneration: 3, UpdateRevision: "before", Conditions: []metav1.Condition{{
				Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPodReady, ObservedGeneration: 3,
			}}}
			tc.raised.mark(sb, birth)
			if err := b.apply(sb, counted); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range sb.Status.Conditions {
				got = append(got, fmt.Sprintf("%s %s %s %d: %s", c.Type, c.Status, c.Reason, c.ObservedGeneration, c.Message))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if sb.Generation != 4 || sb.Status.ObservedGeneration != tc.observed || (sb.Status.UpdateRevision == "before") != tc.raised.resize {
				t.Errorf("generation %d, observed %d, revision %s", sb.Generation, sb.Status.ObservedGeneration, sb.Status.UpdateRevision)
			}
		})
	}
}

func TestResizesInTheStatus(t *testing.T) {
	sandbox := func(name string, status metav1.ConditionStatus, reason, message string) *v1alpha1.Sandbox {
		sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if reason != "" {
			sb.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxConditionInplaceUpdate, Status: status, Reason: reason, Message: message}}
		}
		return sb
	}
	plain := sandbox("plain", "", "", "")
	done := sandbox("done", metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "")
	runs := sandbox("runs", metav1.ConditionFalse, v1alpha1.ReasonInplaceUpdating, "")
	failed := func(i int) *v1alpha1.Sandbox {
		return sandbox(fmt.Sprint("f", i), metav1.ConditionFalse, v1alpha1.ReasonFailed, "why")
	}
	long := sandbox("long", metav1.ConditionFalse, v1alpha1.ReasonFailed, strings.Repeat("ü", maxReason))
	tests := map[string]struct {
		sandboxes []*v1alpha1.Sandbox
		want      string
	}{
		"none":              {nil, ""},
		"nothing to resize": {[]*v1alpha1.Sandbox{plain}, ""},
		"all done":          {[]*v1alpha1.Sandbox{done, plain, done}, "True Succeeded: Resized 2 sandboxes"},
		"some run":          {[]*v1alpha1.Sandbox{done, runs}, "False InplaceUpdating: Resizing 1 sandboxes"},
		"some failed":       {[]*v1alpha1.Sandbox{done, failed(1), runs}, "False Failed: 1 of 3 sandboxes could not be resized: f1: why"},
		"many failed": {
			[]*v1alpha1.Sandbox{failed(1), failed(2), failed(3), failed(4), failed(5)},
			"False Failed: 5 of 5 sandboxes could not be resized: f1: why; f2: why; f3: why; and 2 more",
		},
		"a long story": {
			[]*v1alpha1.Sandbox{long},
			"False Failed: 1 of 1 sandboxes could not be resized: long: " + strings.Repeat("ü", maxReason/2) + "...",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var r resizes
			for _, sb := range tc.sandboxes {
				r.add(sb)
			}
			claim := claimOf(nil)
			condition(claim, birth, v1alpha1.ClaimConditionInplaceUpdate, metav1.ConditionTrue, "Before", "")
			r.report(claim, birth)
			var got string
			for _, c := range claim.Status.Conditions {
				got += fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
			}
			if got != tc.want {
				t.Errorf("says %q, want %q", got, tc.want)
			}
		})
	}
}

// TestBoundAt: a sandbox that waited in its pool for long was not bound when it was
// made.
func TestBoundAt(t *testing.T) {
	sb := pooled.DeepCopy()
	sb.CreationTimestamp = metav1.NewTime(birth.Add(-time.Hour))
	if got := boundAt(sb); !got.Equal(birth.Add(-time.Hour)) {
		t.Errorf("without a claim: %v", got)
	}
	b, err := newBinding(claimOf(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.apply(sb, starting); err != nil {
		t.Fatal(err)
	}
	stamp(sb, birth)
	if got := boundAt(sb); !got.Equal(birth) {
		t.Errorf("bound at %v, want %v", got, birth)
	}
	j := &job{claim: claimOf(func(c *v1alpha1.SandboxClaim) { c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: time.Minute} })}
	j.recover([]*v1alpha1.Sandbox{sb}, birth)
	if until := j.fresh[sb.Name].until; until.Before(birth.Add(time.Minute)) || until.After(birth.Add(time.Minute+time.Second)) {
		t.Errorf("after a restart it may take until %v", until)
	}
}

// What it costs a claim to find that nothing is to be resized.
func BenchmarkNothingToRaise(b *testing.B) {
	a := New(Options{Store: &shelf{}})
	a.SetListed([]*v1alpha1.SandboxSet{setOf("plain", "py", atRevision("abc")), setOf("labelled", "py", patched, atRevision("abc"))}, 9)
	claim := claimOf(warm(1))
	for _, pool := range []string{"plain", "labelled"} {
		b.Run(pool, func(b *testing.B) {
			c := poolindex.Candidate{Pool: named(pool), Revision: "abc"}
			b.ReportAllocs()
			for b.Loop() {
				if a.smallerSet(claim, c) != nil {
					b.Fatal("may be smaller")
				}
			}
		})
	}
}

// What it costs a claim to find what becomes of one more candidate with a template of its own.
func BenchmarkRaiseAnother(b *testing.B) {
	store := &shelf{templates: map[string]*v1alpha1.SandboxTemplate{"py": templateOfPod("py")}}
	store.templates["py"].Spec.Template = withCPU("4")
	a := New(Options{Store: store})
	a.SetListed([]*v1alpha1.SandboxSet{setOf("spot", "py", smaller)}, 9)
	j := &job{a: a, claim: claimOf(warm(100))}
	have := withCPU("2")
	have.Raw = []byte(strings.Replace(string(have.Raw), `"main"`, `"main","x":"`+strings.Repeat("x", 4000)+`"`, 1))
	var own [100]*runtime.RawExtension
	for i := range own {
		own[i] = have.DeepCopy()
	}
	c := poolindex.Candidate{Pool: named("spot"), Revision: "abc"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%len(own) == 0 {
			j.goals = nil // the next draft
		}
		if r, err := j.raise(b.Context(), c, own[i%len(own)]); err != nil || !r.resize {
			b.Fatal(r, err)
		}
	}
}

// What it costs a claim to look up what becomes of a template that it has met before.
func BenchmarkRaiseRemembered(b *testing.B) {
	s := newSizes()
	have, want := withCPU("2"), withCPU("4")
	for _, t := range []*runtime.RawExtension{have, want} {
		t.Raw = []byte(strings.Replace(string(t.Raw), `"main"`, `"main","x":"`+strings.Repeat("x", 4000)+`"`, 1))
	}
	b.ReportAllocs()
	for b.Loop() {
		s.raise(have, want)
	}
}

// TestResizesAreToldOnceInAWhile: a claim is not written for each sandbox whose size is
// what it is to be.
func TestResizesAreToldOnceInAWhile(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.SandboxClaimStatus)
		want   bool
	}{
		"fewer are being resized": {func(s *v1alpha1.SandboxClaimStatus) { s.Conditions[0].Message = "Resizing 1 sandboxes" }, true},
		"none is":                 {func(s *v1alpha1.SandboxClaimStatus) { s.Conditions = nil }, true},
		"something is in the way": {func(s *v1alpha1.SandboxClaimStatus) { s.Conditions, s.Message = nil, "SandboxSet a not found" }, false},
		"the end":                 {func(s *v1alpha1.SandboxClaimStatus) { s.Conditions, s.Phase = nil, v1alpha1.SandboxClaimPhaseCompleted }, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			j := d.job(5, nil)
			(&resizes{running: 2}).report(j.claim, d.clock.Now())
			j.wroteAt = d.clock.Now()
			drafted := &draft{claim: j.claim.DeepCopy()}
			tc.change(&drafted.claim.Status)
			if got := j.tooSoon(drafted); got != tc.want || tc.want && j.untilNext() != progressInterval {
				t.Errorf("held back: %t, looks again after %s", got, j.untilNext())
			}
			d.clock.Step(progressInterval)
			if j.tooSoon(drafted) {
				t.Error("held back for too long")
			}
		})
	}
}

func TestRefusalIsToldShortly(t *testing.T) {
	e := &RefusedError{Reason: v1alpha1.ReasonEnvVarsInjectionRejected}
	for i := range 5 {
		e.Errors = append(e.Errors, field.NotFound(envPath.Index(i).Child("containerName"), "x"))
	}
	want := `environment variable injection rejected: spec.env[0].containerName: Not found: "x"; ` +
		`spec.env[1].containerName: Not found: "x"; spec.env[2].containerName: Not found: "x"; and 2 more`
	if got := e.Error(); got != want {
		t.Errorf("says %q", got)
	}
}
