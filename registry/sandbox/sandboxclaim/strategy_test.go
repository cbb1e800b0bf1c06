// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"

	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/allocator"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
)

var now = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(d))) }

func newStrategy() sandboxclaim.Strategy {
	return sandboxclaim.NewStrategy(registrytest.NewScheme(), testclock.NewFakePassiveClock(now), validation.DefaultClaimLimits())
}

func TestPrepareForCreate(t *testing.T) {
	claim := registrytest.NewSandboxClaim("a")
	claim.Generation = 7
	claim.Status = v1alpha1.SandboxClaimStatus{Phase: v1alpha1.SandboxClaimPhaseCompleted, ClaimedReplicas: 1}
	claim.Spec.ShutdownTime = at(1500 * time.Millisecond)
	claim.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(`{"b": 1, "a": 2}`)}}
	claim.UID = salt

	newStrategy().PrepareForCreate(registrytest.Context(t, "sandboxclaims"), claim)

	want := registrytest.NewSandboxClaim("a")
	want.Generation = 1
	want.UID = claim.UID // of which IdentityOf knows what it has to be
	want.Annotations = map[string]string{
		v1alpha1.AnnotationClaimedBy:         registrytest.UserName,
		v1alpha1.AnnotationClaimedByIdentity: ofAlice,
	}
	want.Spec.ShutdownTime = at(time.Second)
	want.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(`{"a":2,"b":1}`)}}
	if diff := cmp.Diff(want, claim); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// salt is a UID as the generic store gives it to a claim, with the time, and ofAlice what is recorded of
// alice with it.
const (
	salt    = "01a05cd7-2a00-8a1c-9d0f-2f1b6f5f7a11"
	ofAlice = `{"salt":"` + salt + `","user":{"username":"alice"}}`
)

func TestClaimedBy(t *testing.T) {
	const key, identity, alice = v1alpha1.AnnotationClaimedBy, v1alpha1.AnnotationClaimedByIdentity, ofAlice
	tests := map[string]struct {
		stored, sent, want map[string]string
		create, anonymous  bool
	}{
		"create": {
			create: true, sent: map[string]string{"a": "b"},
			want: map[string]string{"a": "b", key: registrytest.UserName, identity: alice},
		},
		"create for another user": {
			create: true, sent: map[string]string{key: "eve", identity: `{"username":"eve","groups":["system:masters"]}`},
			want: map[string]string{key: registrytest.UserName, identity: alice},
		},
		"create without a user": {
			create: true, anonymous: true, sent: map[string]string{key: "eve", identity: "eve", "a": "b"},
			want: map[string]string{"a": "b"},
		},
		"update": {
			stored: map[string]string{key: "bob"}, sent: map[string]string{key: "bob", "a": "b"},
			want: map[string]string{key: "bob", "a": "b"},
		},
		"update to another user": {
			stored: map[string]string{key: "bob", identity: "bob"}, sent: map[string]string{key: "eve", identity: "eve"},
			want: map[string]string{key: "bob", identity: "bob"},
		},
		"update to no user": {
			stored: map[string]string{key: "bob"},
			want:   map[string]string{key: "bob"},
		},
		"update without a user": {
			sent: map[string]string{key: "eve", identity: "eve", "a": "b"},
			want: map[string]string{"a": "b"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := registrytest.Context(t, "sandboxclaims")
			if tc.anonymous {
				ctx = t.Context()
			}
			claim := registrytest.NewSandboxClaim("a")
			claim.UID, claim.Annotations = salt, tc.sent
			if tc.create {
				newStrategy().PrepareForCreate(ctx, claim)
			} else {
				stored := registrytest.NewSandboxClaim("a")
				stored.Annotations = tc.stored
				stored.Generation = 1
				newStrategy().PrepareForUpdate(ctx, claim, stored)
			}
			if diff := cmp.Diff(tc.want, claim.Annotations); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestIdentityWithExtra checks which extra fields of a user are recorded. A user who has others is
// not recorded, because sandboxes that are made later could not be made as that user.
func TestIdentityWithExtra(t *testing.T) {
	for key, want := range map[string]bool{
		"authentication.kubernetes.io/pod-name": true, v1alpha1.AnnotationE2BKeyID: true,
		"scopes": false, v1alpha1.E2BKeyPrefix + "other": false,
	} {
		ctx := genericapirequest.WithUser(registrytest.Context(t, "sandboxclaims"), &user.DefaultInfo{Name: "a", Extra: map[string][]string{key: {"value"}}})
		claim := registrytest.NewSandboxClaim("a")
		claim.UID = salt
		newStrategy().PrepareForCreate(ctx, claim)
		who, err := sandboxclaim.IdentityOf(claim)
		if want != (err == nil) || want && !slices.Equal(who.GetExtra()[key], []string{"value"}) {
			t.Errorf("%s: %v, %v", key, who, err)
		}
		if got := plan.Claimer(claim); got != "a" {
			t.Errorf("%s: the work on the claim counts for %q", key, got)
		}
	}
}

// TestIdentityOfWhatWasWritten: nothing is an identity but what the server recorded of the
// user who made this claim.
func TestIdentityOfWhatWasWritten(t *testing.T) {
	made := func(uid types.UID) *v1alpha1.SandboxClaim {
		claim := registrytest.NewSandboxClaim("a")
		claim.UID = uid
		newStrategy().PrepareForCreate(registrytest.Context(t, "sandboxclaims"), claim)
		return claim
	}
	mine, other := made(salt), made("5f1e9a52-3f4c-4f38-8d43-0f6a2b8e7c22")
	if who, err := sandboxclaim.IdentityOf(mine); err != nil || who.GetName() != registrytest.UserName || mine.UID == salt || mine.UID == other.UID {
		t.Fatalf("got %v, %v, of the claims %s and %s", who, err, mine.UID, other.UID)
	}
	for name, planted := range map[string]string{
		"a user":                  `{"username":"alice","groups":["system:masters"]}`,
		"a record":                `{"salt":"` + salt + `","user":{"username":"alice","groups":["system:masters"]}}`,
		"with the UID as salt":    `{"salt":"` + string(mine.UID) + `","user":{"username":"alice"}}`,
		"that of another claim":   other.Annotations[v1alpha1.AnnotationClaimedByIdentity],
		"none":                    "",
		"no JSON":                 "alice",
		"a salt that is no UUID":  `{"salt":"x","user":{"username":"alice"}}`,
		"nothing of which to ask": `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, uid := range []types.UID{mine.UID, salt} {
				claim := mine.DeepCopy()
				claim.UID = uid // salt is one as a version gave it that recorded nothing
				claim.Annotations[v1alpha1.AnnotationClaimedByIdentity] = planted
				if who, err := sandboxclaim.IdentityOf(claim); !errors.Is(err, allocator.ErrIdentityUnknown) {
					t.Errorf("got %v, %v", who, err)
				}
			}
		})
	}
}

// TestChangedByAnother: with a claim that another user changed, nothing is asked for in
// the name of who made it.
func TestChangedByAnother(t *testing.T) {
	tests := map[string]struct {
		by     string
		change func(*v1alpha1.SandboxClaim)
		known  bool
	}{
		"the same user":             {registrytest.UserName, func(c *v1alpha1.SandboxClaim) { c.Spec.TemplateName = "other" }, true},
		"what it is made from":      {"eve", func(c *v1alpha1.SandboxClaim) { c.Spec.TemplateName = "other" }, false},
		"what is on it":             {"eve", func(c *v1alpha1.SandboxClaim) { c.Spec.Labels = map[string]string{"a": "b"} }, false},
		"whether it is made":        {"eve", func(c *v1alpha1.SandboxClaim) { c.Spec.CreateOnNoStock = new(false) }, false},
		"nothing":                   {"eve", func(*v1alpha1.SandboxClaim) {}, true},
		"labels of the claim":       {"eve", func(c *v1alpha1.SandboxClaim) { c.Labels = map[string]string{"a": "b"} }, true},
		"the record itself":         {"eve", func(c *v1alpha1.SandboxClaim) { c.Annotations[v1alpha1.AnnotationClaimedByIdentity] = "{}" }, true},
		"no user, what is asked of": {"", func(c *v1alpha1.SandboxClaim) { c.Spec.TemplateName = "other" }, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored := registrytest.NewSandboxClaim("a")
			stored.UID = salt
			newStrategy().PrepareForCreate(registrytest.Context(t, "sandboxclaims"), stored)
			changed := stored.DeepCopy()
			tc.change(changed)
			ctx := t.Context()
			if tc.by != "" {
				ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: tc.by})
			}
			newStrategy().PrepareForUpdate(ctx, changed, stored)
			if _, err := sandboxclaim.IdentityOf(changed); (err == nil) != tc.known || changed.Annotations[v1alpha1.AnnotationClaimedBy] != registrytest.UserName {
				t.Errorf("%v, annotations %v", err, changed.Annotations)
			}
			again := changed.DeepCopy() // what was dropped does not come back
			again.Annotations[v1alpha1.AnnotationClaimedByIdentity] = stored.Annotations[v1alpha1.AnnotationClaimedByIdentity]
			newStrategy().PrepareForUpdate(ctx, again, changed)
			if _, err := sandboxclaim.IdentityOf(again); (err == nil) != tc.known {
				t.Errorf("written again: %v, annotations %v", err, again.Annotations)
			}
		})
	}
}

// Who applies a claim must not come to own the annotation that the server writes.
func TestResetFields(t *testing.T) {
	fields := newStrategy().GetResetFields()["agents.kruise.io/v1alpha1"]
	for _, path := range []fieldpath.Path{
		fieldpath.MakePathOrDie("status"),
		fieldpath.MakePathOrDie("metadata", "annotations", v1alpha1.AnnotationClaimedBy),
		fieldpath.MakePathOrDie("metadata", "annotations", v1alpha1.AnnotationClaimedByIdentity),
	} {
		if !fields.Has(path) {
			t.Errorf("%s is not reset", path)
		}
	}
	if fields.Has(fieldpath.MakePathOrDie("metadata", "annotations")) {
		t.Error("all annotations are reset")
	}
}

func TestPrepareForUpdate(t *testing.T) {
	tests := map[string]struct {
		change         func(*v1alpha1.SandboxClaim)
		wantGeneration int64
	}{
		"nothing":              {func(*v1alpha1.SandboxClaim) {}, 3},
		"labels":               {func(c *v1alpha1.SandboxClaim) { c.Labels = map[string]string{"a": "b"} }, 3},
		"status":               {func(c *v1alpha1.SandboxClaim) { c.Status.ClaimedReplicas = 100 }, 3},
		"fraction of a second": {func(c *v1alpha1.SandboxClaim) { c.Spec.ShutdownTime = at(time.Hour + time.Millisecond) }, 3},
		"empty map":            {func(c *v1alpha1.SandboxClaim) { c.Spec.Labels = map[string]string{} }, 3},
		"ttl":                  {func(c *v1alpha1.SandboxClaim) { c.Spec.TTLAfterCompleted = &metav1.Duration{Duration: -1} }, 4},
		"shutdown time":        {func(c *v1alpha1.SandboxClaim) { c.Spec.ShutdownTime = nil }, 4},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored := registrytest.NewSandboxClaim("a")
			stored.Generation = 3
			stored.Spec.ShutdownTime = at(time.Hour)
			stored.Status.ClaimedReplicas = 1
			before := stored.DeepCopy()
			updated := stored.DeepCopy()
			tc.change(updated)

			newStrategy().PrepareForUpdate(t.Context(), updated, stored)

			if updated.Generation != tc.wantGeneration {
				t.Errorf("generation %d, want %d", updated.Generation, tc.wantGeneration)
			}
			if updated.Status.ClaimedReplicas != 1 {
				t.Errorf("status was changed to %d claimed", updated.Status.ClaimedReplicas)
			}
			if diff := cmp.Diff(before, stored); diff != "" {
				t.Errorf("stored object was changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestUpdateOfCompletedClaimIsObserved(t *testing.T) {
	for phase, want := range map[v1alpha1.SandboxClaimPhase]int64{
		v1alpha1.SandboxClaimPhaseCompleted: 4, // at once: no controller observes it
		v1alpha1.SandboxClaimPhaseClaiming:  3,
	} {
		stored := registrytest.NewSandboxClaim("a")
		stored.Generation = 3
		stored.Status.Phase, stored.Status.ObservedGeneration = phase, 3
		updated := stored.DeepCopy()
		updated.Spec.TTLAfterCompleted = &metav1.Duration{Duration: -1}
		newStrategy().PrepareForUpdate(t.Context(), updated, stored)
		if updated.Status.ObservedGeneration != want || stored.Status.ObservedGeneration != 3 {
			t.Errorf("%s: observed %d, want %d", phase, updated.Status.ObservedGeneration, want)
		}
	}
}

// Other metadata is brought to the sandboxes first, and whatever changes meanwhile waits for
// that; a claim without sandboxes has nothing to bring it to.
func TestChangedMetadataIsObservedLater(t *testing.T) {
	labels := func(s *v1alpha1.SandboxClaimSpec) { s.Labels = map[string]string{"a": "b"} }
	ttl := func(s *v1alpha1.SandboxClaimSpec) { s.TTLAfterCompleted = &metav1.Duration{Duration: -1} }
	additional := func(s *v1alpha1.SandboxClaimSpec) {
		s.AdditionalPodMetadata = &v1alpha1.PodMetadata{Annotations: map[string]string{"a": "b"}}
	}
	for name, tc := range map[string]struct {
		change         func(*v1alpha1.SandboxClaimSpec)
		observed, want int64
		claimed        int32
	}{
		"labels":                    {labels, 3, 3, 1},
		"additional":                {additional, 3, 3, 1},
		"labels, without sandboxes": {labels, 3, 4, 0},
		"something else":            {ttl, 3, 4, 1},
		"something else, meanwhile": {ttl, 2, 2, 1},
		"nothing, meanwhile":        {func(*v1alpha1.SandboxClaimSpec) {}, 2, 2, 1},
	} {
		stored := registrytest.NewSandboxClaim("a")
		stored.Generation = 3
		stored.Status = v1alpha1.SandboxClaimStatus{
			Phase: v1alpha1.SandboxClaimPhaseCompleted, ObservedGeneration: tc.observed, ClaimedReplicas: tc.claimed,
		}
		updated := stored.DeepCopy()
		tc.change(&updated.Spec)
		newStrategy().PrepareForUpdate(t.Context(), updated, stored)
		if updated.Status.ObservedGeneration != tc.want {
			t.Errorf("%s: observed %d, want %d", name, updated.Status.ObservedGeneration, tc.want)
		}
	}
}

func TestReplicasAreImmutable(t *testing.T) {
	stored := registrytest.NewSandboxClaim("a")
	stored.ResourceVersion = "1"
	updated := stored.DeepCopy()
	updated.Spec.Replicas = ptr.To[int32](2)
	errs := newStrategy().ValidateUpdate(t.Context(), updated, stored)
	if len(errs) != 1 || errs[0].Field != "spec.replicas" || !strings.Contains(errs[0].Error(), "replicas is immutable") {
		t.Errorf("got %v", errs)
	}
}

func TestStatusPrepareForUpdate(t *testing.T) {
	stored := registrytest.NewSandboxClaim("a")
	stored.Generation = 3
	stored.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: "bob"}
	updated := stored.DeepCopy()
	updated.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: "eve"}
	updated.Spec.Replicas = ptr.To[int32](50)
	updated.Status.ClaimedReplicas = 1

	sandboxclaim.NewStatusStrategy(newStrategy()).PrepareForUpdate(t.Context(), updated, stored)

	want := stored.DeepCopy()
	want.Status.ClaimedReplicas = 1
	if diff := cmp.Diff(want, updated); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStatusOfTheAllocator: a write of the status cannot forge what only the allocator writes, for no
// controller mends it, and no manager comes to own it.
func TestStatusOfTheAllocator(t *testing.T) {
	strategy := sandboxclaim.NewStatusStrategy(newStrategy())
	status := v1alpha1.SandboxClaimStatus{
		ClaimStartTime: at(-time.Hour), FailedReplicas: 2,
		Failures: []v1alpha1.SandboxFailure{{Name: "a", Message: "its phase is Failed"}},
		Waiting:  &v1alpha1.ClaimWaiting{Replicas: 1, PoolProblem: "no node"},
	}
	forged := v1alpha1.SandboxClaimStatus{
		ClaimStartTime: at(time.Hour), FailedReplicas: 200,
		Failures: []v1alpha1.SandboxFailure{{Name: "b", Message: strings.Repeat("x", 1<<20)}},
		Waiting:  &v1alpha1.ClaimWaiting{Reason: "Forged", CreateProblem: strings.Repeat("x", 1<<20)},
	}
	for name, tc := range map[string]struct{ stored, written v1alpha1.SandboxClaimStatus }{
		"changed": {status, forged}, "added": {v1alpha1.SandboxClaimStatus{}, forged}, "removed": {status, v1alpha1.SandboxClaimStatus{}},
	} {
		stored := registrytest.NewSandboxClaim("a")
		stored.Status = tc.stored
		updated := stored.DeepCopy()
		updated.Status = tc.written
		strategy.PrepareForUpdate(t.Context(), updated, stored)
		if diff := cmp.Diff(stored, updated); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
	stored := registrytest.NewSandboxClaim("a")
	stored.Status = status
	updated := stored.DeepCopy()
	updated.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted
	if strategy.PrepareForUpdate(t.Context(), updated, stored); updated.Status.Waiting != nil {
		t.Errorf("a claim that was completed waits: %+v", updated.Status.Waiting)
	}
	for version, fields := range strategy.GetResetFields() {
		for _, name := range []string{"claimStartTime", "failedReplicas", "failures", "waiting"} {
			if !fields.Has(fieldpath.MakePathOrDie("status", name)) {
				t.Errorf("%s: status.%s is not reset", version, name)
			}
		}
	}
}

func TestWarnings(t *testing.T) {
	const runtimes = "spec.runtimes: has no effect on a claim; runtimes are set on the SandboxSet"
	const shutdown = "spec.shutdownTime: 2026-09-01T11:00:00Z has passed already; the claimed sandboxes are deleted at once"
	csi := []v1alpha1.RuntimeConfig{{Name: "csi"}}
	tests := map[string]struct {
		old, spec v1alpha1.SandboxClaimSpec
		want      []string
	}{
		"none":             {},
		"runtimes":         {spec: v1alpha1.SandboxClaimSpec{Runtimes: csi}, want: []string{runtimes}},
		"runtimes before":  {old: v1alpha1.SandboxClaimSpec{Runtimes: csi}, spec: v1alpha1.SandboxClaimSpec{Runtimes: csi}},
		"ahead":            {spec: v1alpha1.SandboxClaimSpec{ShutdownTime: at(time.Hour)}},
		"past":             {spec: v1alpha1.SandboxClaimSpec{ShutdownTime: at(-time.Hour)}, want: []string{shutdown}},
		"passed meanwhile": {old: v1alpha1.SandboxClaimSpec{ShutdownTime: at(-time.Hour)}, spec: v1alpha1.SandboxClaimSpec{ShutdownTime: at(-time.Hour)}},
		"both": {
			spec: v1alpha1.SandboxClaimSpec{Runtimes: csi, ShutdownTime: at(-time.Hour)},
			want: []string{runtimes, shutdown},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim, old := &v1alpha1.SandboxClaim{Spec: tc.spec}, &v1alpha1.SandboxClaim{Spec: tc.old}
			if diff := cmp.Diff(tc.want, newStrategy().WarningsOnUpdate(t.Context(), claim, old)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := sandboxclaim.NewStatusStrategy(newStrategy()).WarningsOnUpdate(t.Context(), claim, old); got != nil {
				t.Errorf("status update warns %q", got)
			}
		})
	}
	if got := newStrategy().WarningsOnCreate(t.Context(), &v1alpha1.SandboxClaim{Spec: tests["both"].spec}); len(got) != 2 {
		t.Errorf("create warns %q", got)
	}
}

// A field that GetAttrs offers and the scheme does not know could never be
// selected by.
func TestGetAttrs(t *testing.T) {
	claim := registrytest.NewSandboxClaim("a")
	claim.Labels = map[string]string{"l": "v"}
	claim.Status.Phase = v1alpha1.SandboxClaimPhaseClaiming
	labels, fields, err := sandboxclaim.GetAttrs(claim)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(claim.Labels, map[string]string(labels)); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	want := map[string]string{"metadata.name": "a", "metadata.namespace": registrytest.Namespace, "status.phase": "Claiming"}
	if diff := cmp.Diff(want, map[string]string(fields)); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	scheme := registrytest.NewScheme()
	for name := range fields {
		if _, _, err := scheme.ConvertFieldLabel(v1alpha1.SchemeGroupVersion.WithKind("SandboxClaim"), name, "x"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := sandboxclaim.GetAttrs(&runtime.Unknown{}); err == nil {
		t.Error("another kind is no error")
	}
}

// TestUIDsAreInOrder: claims of one second are distinguished by the time in their UIDs,
// with a record of who made them and without.
func TestUIDsAreInOrder(t *testing.T) {
	at := testclock.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	strategy := sandboxclaim.NewStrategy(nil, at, validation.DefaultClaimLimits())
	last := types.UID("")
	for i := range 100 {
		claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{UID: uuid.NewUUID()}}
		ctx := t.Context()
		if i%2 == 0 {
			ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: "alice"})
		}
		strategy.PrepareForCreate(ctx, claim)
		if claim.UID <= last {
			t.Errorf("%s comes after %s", claim.UID, last)
		}
		last = claim.UID
		if who, err := sandboxclaim.IdentityOf(claim); (err == nil) != (i%2 == 0) || err == nil && who.GetName() != "alice" {
			t.Errorf("the record is of %v, %v", who, err)
		}
		at.SetTime(at.Now().Add(time.Millisecond))
	}
}
