// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/storage"
	"github.com/sandlot-io/sandlot/pkg/inplace"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// imageOne is a pod template with an image, two cpus, and what is not to be changed.
func imageOne() *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"image":"one","name":"main","new":7,"resources":{"limits":{"cpu":"8"},"requests":{"cpu":"2"}}},{"image":"side","name":"side","resources":{"requests":{"cpu":"1"}}}],"initContainers":[{"image":"init","name":"init"}]}}`)}
}

// cpuBefore undoes a change of the cpu in imageOne.
const cpuBefore = `{"spec":{"containers":[{"name":"main","resources":{"$patch":"replace","limits":{"cpu":"8"},"requests":{"cpu":"2"}}}]}}`

// inPlaceOf is a claim that asks for an image and a request of cpu.
func inPlaceOf(replicas int32, image, cpu string) func(*v1alpha1.SandboxClaim) {
	return func(c *v1alpha1.SandboxClaim) {
		warm(replicas)(c)
		c.Spec.InplaceUpdate = &v1alpha1.SandboxClaimInplaceUpdateOptions{Image: image}
		if cpu != "" {
			c.Spec.InplaceUpdate.Resources = &v1alpha1.SandboxClaimInplaceUpdateResources{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}
		}
	}
}

// withOwn is a desk whose pool has sandboxes with a template of their own, of two cpus.
func withOwn(t *testing.T, names ...string) *desk {
	d := newDesk(t, setOf("a", "py"))
	d.shelf.templates["py"] = templateOfPod("py")
	d.shelf.templates["py"].Spec.Template = imageOne()
	for _, name := range names {
		d.stocks(name, d.sets[0], pods)
		d.sandboxes[name].Spec.TemplateRef, d.sandboxes[name].Spec.Template = nil, imageOne()
	}
	return d
}

// TestBoundInPlace: what a claim asks for is in the template that a sandbox is bound
// with, and marked where it is something else than before. The claim is for all or
// nothing, since any other one gets another image in one sandbox first.
func TestBoundInPlace(t *testing.T) {
	tests := map[string]struct {
		image, cpu string
		goal       inplace.Goal
	}{
		"both":                {"two", "1", inplace.Goal{Image: true, CPU: true, Before: cpuBefore}},
		"an image":            {"two", "", inplace.Goal{Image: true}},
		"less cpu":            {"", "1", inplace.Goal{CPU: true, Before: cpuBefore}},
		"what it has already": {"one", "2000m", inplace.Goal{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := withOwn(t, "x", "y")
			patches := podtemplate.Patched()
			p := d.planned(d.newAttempt(func(c *v1alpha1.SandboxClaim) { inPlaceOf(2, tc.image, tc.cpu)(c); allOrNothing(c) }))
			if done := podtemplate.Patched() - patches; done > 1 {
				t.Errorf("%d patches for two sandboxes that are alike", done)
			}
			if len(p.Bound) != 2 {
				t.Fatalf("bound %d", len(p.Bound))
			}
			for _, sb := range p.Bound {
				want := string(imageOne().Raw)
				if tc.goal.Image {
					want = strings.Replace(want, `"one"`, `"two"`, 1)
				}
				if tc.goal.CPU {
					want = strings.Replace(want, `"requests":{"cpu":"2"}`, `"requests":{"cpu":"1"}`, 1)
				}
				if got := string(sb.Spec.Template.Raw); !strings.Contains(got, want[len(`{"spec"`):]) {
					t.Errorf("bound as %s, want %s", got, want)
				}
				if waits := tc.goal.Any(); inplace.GoalOf(sb) != tc.goal || inplace.InProgress(sb) != waits || plan.IsStarting(sb) != waits {
					t.Errorf("goal %+v, in progress %v, starting %v", inplace.GoalOf(sb), inplace.InProgress(sb), plan.IsStarting(sb))
				}
			}
		})
	}
}

// TestNoImageTrialIfPoolRunsImage: a claim that asks for the image that the pool runs already gets all its
// sandboxes at the same time, and they count. Another image is tried on one of them.
func TestNoImageTrialIfPoolRunsImage(t *testing.T) {
	for image, want := range map[string]int{"one": 3, "two": 1} {
		change := inPlaceOf(3, image, "")
		first := withOwn(t, "x", "y", "z")
		later := withOwn(t, "x", "y", "z")
		dry := withOwn(t, "x", "y", "z")
		p := first.planned(first.newAttempt(change))
		if len(p.Bound) != want || p.Ends() != (want == 3) {
			t.Errorf("%s: bound %d, ends %v", image, len(p.Bound), p.Ends())
		}
		if p := later.planned(later.nextAttempt(change)); len(p.Bound) != want {
			t.Errorf("%s: one that waits: bound %d", image, len(p.Bound))
		}
		if shown, err := dry.Preview(t.Context(), claimOf(change)); err != nil || (shown.Status.ClaimedReplicas == 3) != (want == 3) {
			t.Errorf("%s: a dry run: %v, %+v", image, err, shown)
		}
	}
}

// TestContestedImageKeepsOneSandbox checks that, if another claim takes the sandbox that runs a
// claim's image, the claim keeps one sandbox to try the image on and returns the others.
func TestContestedImageKeepsOneSandbox(t *testing.T) {
	d := withOwn(t, "x", "y", "z")
	for _, name := range []string{"y", "z"} {
		d.sandboxes[name].Spec.Template.Raw = []byte(strings.Replace(string(imageOne().Raw), `"one"`, `"zero"`, 1))
	}
	try := d.newAttempt(inPlaceOf(3, "one", ""))
	p := d.planned(try)
	if len(p.Bound) != 3 || p.Bound[0].Name != "x" || d.left("a") != 0 {
		t.Fatalf("bound %d, %d are left", len(p.Bound), d.left("a"))
	}
	if err := d.committer.handleConflict(p, try.finder.reservation, []etcdtxn.Modified{{Index: 1}}); !errors.Is(err, storage.ErrReplan) {
		t.Fatal(err)
	}
	if p := d.planned(try); len(p.Bound) != 1 || d.left("a") != 1 {
		t.Errorf("bound %d, %d are left", len(p.Bound), d.left("a"))
	}
}

// TestMadeInPlace: a sandbox that is made for a claim is made with what it asks for, from
// a set and straight from a template.
func TestMadeInPlace(t *testing.T) {
	for name, sets := range map[string][]*v1alpha1.SandboxSet{"of a set": {setOf("a", "py")}, "of a template": nil} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, sets...)
			d.shelf.templates["py"] = templateOfPod("py")
			d.shelf.templates["py"].Spec.Template = imageOne()
			p := d.planned(d.newAttempt(func(c *v1alpha1.SandboxClaim) { inPlaceOf(1, "two", "1")(c); orFresh(c) }))
			if len(p.Made) != 1 {
				t.Fatalf("made %d", len(p.Made))
			}
			sb := p.Made[0]
			if got := string(sb.Spec.Template.Raw); !strings.Contains(got, `"image":"two"`) || !strings.Contains(got, `"requests":{"cpu":"1"}`) {
				t.Errorf("made as %s", got)
			}
			if inplace.GoalOf(sb).Any() || inplace.InProgress(sb) {
				t.Errorf("is to be changed: %+v", sb.Status.Conditions)
			}
		})
	}
}

// TestAboveTheLimit: a request that is above the limit is refused where that is known
// when the claim is created. Later the sandbox keeps its cpu, and gets the image.
func TestAboveTheLimit(t *testing.T) {
	const why = `spec.inplaceUpdate.resources.requests[cpu]: Invalid value: "9": must not be more than the cpu limit of the first container, 8`
	change := inPlaceOf(1, "two", "9")
	fresh := func(c *v1alpha1.SandboxClaim) { change(c); orFresh(c) }
	d := withOwn(t, "x")
	var refused *RefusedError
	if _, err := d.newAttempt(change).plan(t.Context()); !errors.As(err, &refused) || refused.Errors.ToAggregate().Error() != why {
		t.Errorf("a new claim: %v", err)
	}
	if _, err := d.Preview(t.Context(), claimOf(change)); !errors.As(err, &refused) {
		t.Errorf("a dry run: %v", err)
	}
	d = withOwn(t, "x")
	sb := d.planned(d.nextAttempt(change)).Bound[0]
	if got := string(sb.Spec.Template.Raw); !strings.Contains(got, `"image":"two"`) || !strings.Contains(got, `"requests":{"cpu":"2"}`) {
		t.Errorf("bound as %s", got)
	}
	if got := inplace.GoalOf(sb); got != (inplace.Goal{Image: true, Failed: why}) {
		t.Errorf("goal %+v", got)
	}
	d = withOwn(t, "x")
	sb = d.planned(d.nextAttempt(inPlaceOf(1, "", "9"))).Bound[0]
	update := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate)
	if plan.IsStarting(sb) || update == nil || update.Message != "in-place resource resize failed: "+why {
		t.Errorf("with the cpu alone: %+v", update)
	}

	d = withOwn(t)
	if _, err := d.newAttempt(fresh).plan(t.Context()); !errors.As(err, &refused) {
		t.Errorf("a new claim that nothing is there for: %v", err)
	}
	d = withOwn(t)
	if p := d.planned(d.nextAttempt(fresh)); len(p.Made) > 0 || !errors.As(p.Broken, &refused) || !strings.Contains(p.Claim.Status.Message, why) {
		t.Errorf("one that waits: %v, %s", p.Broken, p.Claim.Status.Message)
	}
}

// TestRaisedAndInPlace: of a sandbox of a smaller pool the claim's cpu is what the claim
// says, and everything else what the template says.
func TestRaisedAndInPlace(t *testing.T) {
	set := setOf("a", "py", smaller)
	d := newDesk(t, set)
	d.shelf.templates["py"] = templateOfPod("py")
	d.shelf.templates["py"].Spec.Template = &runtime.RawExtension{Raw: []byte(
		`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"4"}}},{"name":"side","resources":{"requests":{"cpu":"3"}}}]}}`)}
	d.stocks("x", set, pods)
	d.sandboxes["x"].Spec.TemplateRef = nil
	d.sandboxes["x"].Spec.Template = &runtime.RawExtension{Raw: []byte(
		`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"}}},{"name":"side","resources":{"requests":{"cpu":"1"}}}]}}`)}
	sb := d.planned(d.newAttempt(inPlaceOf(1, "", "1"))).Bound[0]
	const want = `[{"name":"main","resources":{"requests":{"cpu":"1"}}},{"name":"side","resources":{"requests":{"cpu":"3"}}}]`
	const before = `[{"name":"main","resources":{"$patch":"replace","requests":{"cpu":"2"}}},{"name":"side","resources":{"$patch":"replace","requests":{"cpu":"1"}}}]`
	goal := inplace.Goal{CPU: true, Size: true, Before: `{"spec":{"containers":` + before + `}}`}
	if got := string(sb.Spec.Template.Raw); !strings.Contains(got, want) || inplace.GoalOf(sb) != goal {
		t.Errorf("bound as %s, %+v", got, inplace.GoalOf(sb))
	}
}

// TestEditedInPlace: what was found for a claim before its inplaceUpdate was edited is not
// bound as it was to be then.
func TestEditedInPlace(t *testing.T) {
	d := withOwn(t, "x")
	next := d.nextAttempt(inPlaceOf(1, "two", ""))
	d.planned(next)
	edited := next.state.Claim.DeepCopy()
	edited.Spec.InplaceUpdate.Image, edited.Generation = "three", edited.Generation+1
	next.state.Claim = edited
	p := d.planned(next)
	if len(p.Bound) != 1 || !strings.Contains(string(p.Bound[0].Spec.Template.Raw), `"image":"three"`) {
		t.Errorf("bound %+v", p.Bound)
	}
}
