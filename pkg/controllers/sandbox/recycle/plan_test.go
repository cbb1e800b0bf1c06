// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package recycle

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var now = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

type change = func(*v1alpha1.Sandbox)

// used is a claimed sandbox that runs, and is to be recycled.
func used(changes ...change) *v1alpha1.Sandbox {
	sb := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "box", UID: "u", Generation: 3,
			Labels: map[string]string{
				v1alpha1.LabelSandboxPool: "pool", v1alpha1.LabelTemplateHash: "rev",
				v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedTrue, v1alpha1.LabelClaimName: "claim",
			},
			Annotations: map[string]string{
				v1alpha1.AnnotationLock: "lock", v1alpha1.AnnotationOwner: "claim-uid", v1alpha1.AnnotationPoolUID: "set-uid",
				v1alpha1.AnnotationCleanupEnabled: "true", v1alpha1.AnnotationCleanup: "true",
			},
		},
		Status: v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxRunning},
	}
	for _, change := range changes {
		change(sb)
	}
	return sb
}

func annotated(key, value string) change {
	return func(sb *v1alpha1.Sandbox) {
		if sb.Annotations[key] = value; value == "" {
			delete(sb.Annotations, key)
		}
	}
}

func labelled(key, value string) change {
	return func(sb *v1alpha1.Sandbox) {
		if sb.Labels[key] = value; value == "" {
			delete(sb.Labels, key)
		}
	}
}

func in(phase v1alpha1.SandboxPhase) change {
	return func(sb *v1alpha1.Sandbox) { sb.Status.Phase = phase }
}

func pooled(sb *v1alpha1.Sandbox) {
	sb.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "pool", UID: "set-uid", Controller: new(true),
	}}
}

// began is a sandbox whose recycling began so long ago.
func began(ago time.Duration) change {
	return func(sb *v1alpha1.Sandbox) { Begin(&sb.Status, sb.Generation, now.Add(-ago)) }
}

func cleaned(sb *v1alpha1.Sandbox) { Clean(&sb.Status, sb.Generation, now) }

// theSet is the set from whose pool the sandbox is.
func theSet(changes ...func(*v1alpha1.SandboxSet)) *v1alpha1.SandboxSet {
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "set-uid"}}
	set.Status.UpdateRevision = "rev"
	for _, change := range changes {
		change(set)
	}
	return set
}

func TestDecide(t *testing.T) {
	const timeout = time.Minute
	rejected := func(why string) plan {
		return plan{action: reject, reason: v1alpha1.ReasonRecyclingRejected, message: why}
	}
	failed := func(why string) plan {
		return plan{action: fail, reason: v1alpha1.ReasonRecyclingFailed, message: why}
	}
	late := plan{action: fail, reason: v1alpha1.ReasonRecyclingTimeout, message: "The sandbox was not recycled within 1m0s"}
	type changes = []change
	tests := map[string]struct {
		sandbox changes
		set     *v1alpha1.SandboxSet // nil is the set
		noSet   bool
		broken  error
		want    plan
	}{
		"asked for":                     {want: plan{action: begin}},
		"of a claim of earlier":         {sandbox: changes{annotated(v1alpha1.AnnotationPoolUID, "")}, want: plan{action: begin}},
		"not asked for":                 {sandbox: changes{annotated(v1alpha1.AnnotationCleanup, "")}},
		"another value":                 {sandbox: changes{annotated(v1alpha1.AnnotationCleanup, "yes")}},
		"deleted":                       {sandbox: changes{func(sb *v1alpha1.Sandbox) { sb.DeletionTimestamp = &metav1.Time{Time: now} }}},
		"deleted while it is recycled":  {sandbox: changes{began(time.Hour), func(sb *v1alpha1.Sandbox) { sb.DeletionTimestamp = &metav1.Time{Time: now} }}},
		"recycled before":               {sandbox: changes{began(time.Hour), func(sb *v1alpha1.Sandbox) { Finish(&sb.Status, &sb.Spec, 1, now) }, in(v1alpha1.SandboxRunning)}, want: plan{action: begin}},
		"rejected before":               {sandbox: changes{func(sb *v1alpha1.Sandbox) { Fail(&sb.Status, v1alpha1.ReasonRecyclingRejected, "x", 1, now) }}, want: plan{action: begin}},
		"not enabled":                   {sandbox: changes{annotated(v1alpha1.AnnotationCleanupEnabled, "")}, want: rejected("The annotation agents.kruise.io/cleanup-enabled is not true")},
		"enabled in another way":        {sandbox: changes{annotated(v1alpha1.AnnotationCleanupEnabled, "True")}, want: rejected("The annotation agents.kruise.io/cleanup-enabled is not true")},
		"in a pool":                     {sandbox: changes{pooled}, want: rejected("The sandbox is in a pool already")},
		"made by a user":                {sandbox: changes{annotated(v1alpha1.AnnotationLock, ""), annotated(v1alpha1.AnnotationOwner, "")}, want: rejected("The sandbox is not claimed")},
		"locked by another program":     {sandbox: changes{annotated(v1alpha1.AnnotationOwner, "")}, want: rejected("The sandbox is not claimed")},
		"let go":                        {sandbox: changes{annotated(v1alpha1.AnnotationOwner, ""), labelled(v1alpha1.LabelClaimName, "")}, want: rejected("The sandbox is not claimed")},
		"to be scaled down":             {sandbox: changes{annotated(v1alpha1.AnnotationOwner, v1alpha1.OwnerScaleDown)}, want: rejected("The sandbox is not claimed")},
		"unclaimed":                     {sandbox: changes{labelled(v1alpha1.LabelSandboxClaimed, "false")}, want: rejected("The sandbox is not claimed")},
		"starting":                      {sandbox: changes{annotated(v1alpha1.AnnotationStarting, "true")}, want: rejected("The sandbox is still starting for its claim")},
		"paused":                        {sandbox: changes{in(v1alpha1.SandboxPaused)}, want: rejected("The sandbox is paused or comes back from a pause")},
		"to be paused":                  {sandbox: changes{func(sb *v1alpha1.Sandbox) { sb.Spec.Paused = true }}, want: rejected("The sandbox is paused or comes back from a pause")},
		"resuming":                      {sandbox: changes{in(v1alpha1.SandboxResuming)}, want: rejected("The sandbox is paused or comes back from a pause")},
		"failed":                        {sandbox: changes{in(v1alpha1.SandboxFailed)}, want: rejected("The sandbox is Failed, not Running")},
		"with volumes":                  {sandbox: changes{func(sb *v1alpha1.Sandbox) { sb.Spec.VolumeClaimTemplates = make([]runtime.RawExtension, 1) }}, want: rejected("The sandbox has PersistentVolumeClaims")},
		"of no pool":                    {sandbox: changes{labelled(v1alpha1.LabelSandboxPool, "")}, noSet: true, want: failed("The sandbox comes from no pool")},
		"made for its claim":            {sandbox: changes{labelled(v1alpha1.LabelTemplateHash, "")}, want: failed("The sandbox comes from no pool")},
		"the set is gone":               {noSet: true, want: failed("SandboxSet pool is gone")},
		"the set is being deleted":      {set: theSet(func(s *v1alpha1.SandboxSet) { s.DeletionTimestamp = &metav1.Time{Time: now} }), want: failed("SandboxSet pool is being deleted")},
		"another set of the name":       {set: theSet(func(s *v1alpha1.SandboxSet) { s.UID = "other" }), want: failed("SandboxSet pool is another one than that which the sandbox comes from")},
		"of an older revision":          {set: theSet(func(s *v1alpha1.SandboxSet) { s.Status.UpdateRevision = "new" }), want: failed("The sandbox is of revision rev, SandboxSet pool of new by now")},
		"the set can make none":         {broken: errors.New("no template"), want: failed("SandboxSet pool can make no sandboxes: no template")},
		"its pod is being deleted":      {sandbox: changes{began(20 * time.Second)}, want: plan{again: 40 * time.Second}},
		"no longer asked for":           {sandbox: changes{annotated(v1alpha1.AnnotationCleanup, ""), began(20 * time.Second)}, want: plan{again: 40 * time.Second}},
		"its pod is gone":               {sandbox: changes{began(20 * time.Second), cleaned}, want: plan{action: restore, again: 40 * time.Second}},
		"its pod is gone, and the set":  {sandbox: changes{began(20 * time.Second), cleaned}, noSet: true, want: failed("SandboxSet pool is gone")},
		"its pod is gone, another hash": {sandbox: changes{began(20 * time.Second), cleaned}, set: theSet(func(s *v1alpha1.SandboxSet) { s.Status.UpdateRevision = "new" }), want: failed("The sandbox is of revision rev, SandboxSet pool of new by now")},
		"back in the pool":              {sandbox: changes{began(20 * time.Second), cleaned, pooled}, want: plan{again: 40 * time.Second}},
		"its pod stays":                 {sandbox: changes{began(timeout)}, want: late},
		"its pod stayed for long":       {sandbox: changes{began(time.Minute + time.Second), cleaned}, want: late},
		"its new pod does not come":     {sandbox: changes{began(timeout), cleaned, pooled}, want: late},
		"given up, and not done": {sandbox: changes{began(timeout), func(sb *v1alpha1.Sandbox) {
			Fail(&sb.Status, v1alpha1.ReasonRecyclingTimeout, "late", 1, now)
		}}, want: plan{action: fail, reason: v1alpha1.ReasonRecyclingTimeout, message: "late"}},
		"given up": {sandbox: changes{began(timeout), annotated(v1alpha1.AnnotationCleanup, ""), func(sb *v1alpha1.Sandbox) {
			Fail(&sb.Status, v1alpha1.ReasonRecyclingTimeout, "late", 1, now)
		}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := &observation{sandbox: used(tc.sandbox...), set: tc.set, member: &v1alpha1.Sandbox{}, timeout: timeout, now: now}
			if o.set == nil && !tc.noSet {
				o.set = theSet()
			}
			if tc.broken != nil {
				o.member, o.noMember = nil, tc.broken
			}
			if diff := cmp.Diff(tc.want, o.decide(), cmp.AllowUnexported(plan{})); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// Each phase of recycling is one in which no claim and no user takes the sandbox for
// usable.
func TestStatuses(t *testing.T) {
	sb := used(func(sb *v1alpha1.Sandbox) {
		sb.Status.SandboxIP, sb.Status.NodeName = "10.0.0.1", "node"
		sb.Status.PodInfo = v1alpha1.PodInfo{PodIP: "10.0.0.1", PodUID: "pod", NodeName: "node", Labels: map[string]string{"a": "b"}}
		sb.Status.RecycledCount = 4
		for _, kind := range []string{"Ready", "SandboxResumed", "InplaceUpdate", "RuntimeInitialized", "VolumesMounted", "Recycling"} {
			sb.Status.Conditions = append(sb.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Before"})
		}
	})
	if got := v1alpha1.StateOf(sb, now); got != v1alpha1.StateRunning {
		t.Fatalf("before it is %s", got)
	}
	conditions := func(reason string) []metav1.Condition {
		at := metav1.NewTime(now)
		message := "The pod is gone"
		if reason == v1alpha1.ReasonRecyclingStarted {
			message = "The pod is being deleted"
		}
		return []metav1.Condition{
			{Type: "Ready", Status: "False", Reason: "PodReady", Message: StartingMessage, ObservedGeneration: 3, LastTransitionTime: at},
			{Type: "Recycling", Status: "False", Reason: reason, Message: message, ObservedGeneration: 3, LastTransitionTime: at},
		}
	}
	Begin(&sb.Status, 3, now)
	want := v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxRecycling, RecycledCount: 4, Conditions: conditions(v1alpha1.ReasonRecyclingStarted)}
	if diff := cmp.Diff(want, sb.Status); diff != "" {
		t.Errorf("begun (-want +got):\n%s", diff)
	}
	if got := v1alpha1.StateOf(sb, now); got != v1alpha1.StatePaused || IsCleaned(sb) {
		t.Errorf("begun it is %s", got)
	}
	Clean(&sb.Status, 3, now.Add(time.Second))
	if diff := cmp.Diff(conditions(v1alpha1.ReasonRecyclingCompleted), sb.Status.Conditions); diff != "" {
		t.Errorf("cleaned (-want +got):\n%s", diff)
	}
	if !IsCleaned(sb) || IsStarting(sb) || !StartedAt(sb).Equal(now) {
		t.Errorf("cleaned it is %+v", sb.Status)
	}
	pooled(sb)
	if got := v1alpha1.StateOf(sb, now); got != v1alpha1.StateCreating || !IsStarting(sb) {
		t.Errorf("in its pool it is %s", got)
	}
	Finish(&sb.Status, &sb.Spec, 3, now)
	if sb.Status.RecycledCount != 5 || IsStarting(sb) {
		t.Errorf("finished it is %+v", sb.Status)
	}
	sb.Status.RecycledCount = math.MaxInt32
	if Finish(&sb.Status, &sb.Spec, 3, now); sb.Status.RecycledCount != math.MaxInt32 {
		t.Errorf("was recycled %d times", sb.Status.RecycledCount)
	}
}

func TestRetention(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": 0, "10m": 10 * time.Minute, "0s": 0, "-1h": 0, "ten minutes": 0, "10": 0, "forever": 0,
		"168h": v1alpha1.MaxCleanupRetention, "169h": v1alpha1.MaxCleanupRetention, "2000000h": v1alpha1.MaxCleanupRetention,
		"9999999999h": 0, // no duration of Go
	} {
		sb := used(annotated(v1alpha1.AnnotationCleanupRetainOnFailure, value))
		if got := retention(sb); got != want {
			t.Errorf("%q keeps it for %s, want %s", value, got, want)
		}
		pooled(sb)
		if got := retention(sb); got != 0 {
			t.Errorf("%q keeps it for %s in its pool", value, got)
		}
	}
}
