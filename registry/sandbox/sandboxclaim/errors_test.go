// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/allocator"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

var claimResource = schema.GroupResource{Group: "agents.kruise.io", Resource: "sandboxclaims"}

// What the binder refuses, a client knows by code, reason and the field that is
// to blame.
func TestErrors(t *testing.T) {
	details := func(retryAfter int32, causes ...metav1.StatusCause) *metav1.StatusDetails {
		return &metav1.StatusDetails{Name: "mine", Group: claimResource.Group, Kind: "SandboxClaim", RetryAfterSeconds: retryAfter, Causes: causes}
	}
	const short = "SandboxSet pool has 1 of 3 sandboxes available"
	const tooMany = "too few sandboxes are available now, and no more claims of this user may wait in namespace default, which has places for 7"
	shortCause := metav1.StatusCause{Type: "SandboxShortage", Field: "spec.replicas", Message: short}
	tests := map[string]struct {
		err    error
		code   int32
		reason metav1.StatusReason
		// message is compared where details do not say it.
		message string
		details *metav1.StatusDetails
	}{
		"exists": {
			err:  fmt.Errorf("binding: %w", allocator.ErrClaimExists),
			code: http.StatusConflict, reason: metav1.StatusReasonAlreadyExists,
			message: `sandboxclaims.agents.kruise.io "mine" already exists`,
			details: &metav1.StatusDetails{Name: "mine", Group: claimResource.Group, Kind: "sandboxclaims"},
		},
		"no set": {
			err:  fmt.Errorf("binding: %w", allocator.ErrSetNotFound),
			code: http.StatusUnprocessableEntity, reason: metav1.StatusReasonInvalid,
			message: `SandboxClaim.agents.kruise.io "mine" is invalid: spec.templateName: Not found: "pool"`,
			details: details(0, metav1.StatusCause{
				Type: metav1.CauseTypeFieldValueNotFound, Field: "spec.templateName", Message: `Not found: "pool"`,
			}),
		},
		"too large": {
			err:  fmt.Errorf("%w: 40 sandboxes fit", allocator.ErrTooLarge),
			code: http.StatusUnprocessableEntity, reason: metav1.StatusReasonInvalid,
			message: `SandboxClaim.agents.kruise.io "mine" is invalid: spec.replicas: Invalid value: 3: too large for one transaction: 40 sandboxes fit`,
			details: details(0, metav1.StatusCause{
				Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.replicas",
				Message: "Invalid value: 3: too large for one transaction: 40 sandboxes fit",
			}),
		},
		"shortage": {
			err:  fmt.Errorf("binding: %w", &allocator.ShortageError{Set: "pool", Wanted: 3, Available: 1}),
			code: http.StatusTooManyRequests, reason: metav1.StatusReasonTooManyRequests,
			message: short, details: details(0, shortCause), // without Retry-After, which kubectl follows by itself
		},
		"too many wait": {
			err:  &allocator.TooManyWaitingError{Namespace: "default", Most: 7, RetryAfter: 1100 * time.Millisecond},
			code: http.StatusTooManyRequests, reason: metav1.StatusReasonTooManyRequests,
			message: tooMany, details: details(2, metav1.StatusCause{Type: "TooManyWaitingClaims", Message: tooMany}),
		},
		"unknown outcome": {
			err:  fmt.Errorf("binding: %w", allocator.ErrUnknownOutcome),
			code: http.StatusGatewayTimeout, reason: metav1.StatusReasonTimeout,
			message: "Timeout: binding: it is not known whether the claim was stored; creating it again by the same name is safe and cannot bind twice",
			details: &metav1.StatusDetails{}, // without Retry-After, which clients follow by themselves
		},
		"the watch cache begins again": {
			err:  fmt.Errorf("listing sandboxes: %w", apierrors.NewTooManyRequests("storage is (re)initializing", 3)),
			code: http.StatusTooManyRequests, reason: metav1.StatusReasonTooManyRequests,
			message: "storage is (re)initializing", details: &metav1.StatusDetails{RetryAfterSeconds: 3},
		},
		"unknown outcome, while the watch cache begins again": {
			err:  fmt.Errorf("%w: %w", allocator.ErrUnknownOutcome, apierrors.NewTooManyRequests("storage is (re)initializing", 3)),
			code: http.StatusGatewayTimeout, reason: metav1.StatusReasonTimeout,
			message: "Timeout: it is not known whether the claim was stored: storage is (re)initializing; creating it again by the same name is safe and cannot bind twice",
			details: &metav1.StatusDetails{},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim := registrytest.NewSandboxClaim("mine")
			claim.Spec.Replicas = ptr.To[int32](3)
			// The generic store has the last word, for both ways of creation.
			for verb, interpret := range map[string]func(error) error{
				"create": func(err error) error { return storeerr.InterpretCreateError(err, claimResource, "mine") },
				"update": func(err error) error { return storeerr.InterpretUpdateError(err, claimResource, "mine") },
			} {
				err := interpret(statusError(claim, tc.err))
				if tc.code == http.StatusConflict && verb == "update" {
					continue // GuaranteedUpdate updates what exists
				}
				var status apierrors.APIStatus
				if !errors.As(err, &status) {
					t.Fatalf("%s: %T is no Status: %v", verb, err, err)
				}
				got := status.Status()
				if got.Code != tc.code || got.Reason != tc.reason || got.Message != tc.message {
					t.Errorf("%s: %d %s %q\nwant %d %s %q", verb, got.Code, got.Reason, got.Message, tc.code, tc.reason, tc.message)
				}
				if diff := cmp.Diff(tc.details, got.Details, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s: details (-want +got):\n%s", verb, diff)
				}
			}
		})
	}
}

// What is not the binder's to explain goes through as it is.
func TestOtherErrors(t *testing.T) {
	claim := registrytest.NewSandboxClaim("mine")
	for name, err := range map[string]error{
		"cancelled": context.Canceled,
		"deadline":  context.DeadlineExceeded,
		"other":     errors.New("etcd refused the transaction"),
	} {
		if got := statusError(claim, err); got != err { //nolint:errorlint // the very same
			t.Errorf("%s: got %v", name, got)
		}
	}
	forbidden := apierrors.NewForbidden(claimResource, "mine", errors.New("no"))
	if diff := cmp.Diff(error(forbidden), statusError(claim, forbidden)); diff != "" {
		t.Errorf("a Status (-want +got):\n%s", diff)
	}
	storing := &bindingStorage{binder: &fakeBinder{err: fmt.Errorf("binding: %w", allocator.ErrClaimExists)}}
	if err := storing.Create(t.Context(), "key", claim, nil, 0); !storage.IsExist(err) {
		t.Errorf("got %v: a generated name would not be tried again", err)
	}
}

// fakeBinder answers with what the test says, and keeps what it got.
type fakeBinder struct {
	created, previewed []*v1alpha1.SandboxClaim
	err, short         error
	onCreate           func()
}

func (*fakeBinder) Ahead(*v1alpha1.SandboxClaim) (int, bool) { return 0, false }

func (b *fakeBinder) Check(context.Context, *v1alpha1.SandboxClaim) error { return b.short }

func (b *fakeBinder) CheckSource(context.Context, *v1alpha1.SandboxClaim) error { return nil }

func (b *fakeBinder) Create(_ context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	b.created = append(b.created, claim.DeepCopy())
	if b.onCreate != nil {
		b.onCreate()
	}
	bound := claim.DeepCopy()
	bound.ResourceVersion, bound.Status.Phase = "7", v1alpha1.SandboxClaimPhaseCompleted
	return bound, b.err
}

func (b *fakeBinder) Preview(_ context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	b.previewed = append(b.previewed, claim.DeepCopy())
	shown := claim.DeepCopy()
	shown.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted
	return shown, b.err
}

func newTestREST(t *testing.T, binder Binder) *REST {
	t.Helper()
	fixture := registrytest.New(t)
	s, err := NewREST(fixture.Scheme, fixture, binder, validation.DefaultClaimLimits())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.SandboxClaim.Destroy)
	return s.SandboxClaim
}

// A dry run that would be refused is refused alike.
func TestDryRunErrors(t *testing.T) {
	binder := &fakeBinder{err: &allocator.ShortageError{Set: "pool", Wanted: 1}}
	r := newTestREST(t, binder)
	ctx := registrytest.Context(t, "sandboxclaims")
	dry := []string{metav1.DryRunAll}
	_, err := r.Create(ctx, registrytest.NewSandboxClaim("mine"), rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: dry})
	if !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, v1alpha1.CauseShortage) {
		t.Errorf("create: %v, want 429 for shortage", err)
	}
	_, _, err = r.Update(ctx, "mine", rest.DefaultUpdatedObjectInfo(registrytest.NewSandboxClaim("mine")), rest.ValidateAllObjectFunc,
		rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{DryRun: dry})
	if !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, v1alpha1.CauseShortage) {
		t.Errorf("apply: %v, want 429 for shortage", err)
	}
	if len(binder.created) != 0 || len(binder.previewed) != 2 {
		t.Errorf("%d bound, %d previewed, want 0 and 2", len(binder.created), len(binder.previewed))
	}
}

// TestWorkOfDryRuns: a dry run counts as work by the sandboxes that the claim asks for, and is not made if that is refused.
func TestWorkOfDryRuns(t *testing.T) {
	busy := errors.New("busy")
	for _, refuse := range []error{nil, busy} {
		binder := &fakeBinder{}
		r := newTestREST(t, binder)
		began, ended := 0, 0
		ctx := base.WithWork(registrytest.Context(t, "sandboxclaims"), func(_ context.Context, bytes int) (func(), error) {
			began += bytes
			return func() { ended += bytes }, refuse
		})
		claim := registrytest.NewSandboxClaim("mine")
		claim.Spec.Replicas = new(int32(7))
		_, err := r.Create(ctx, claim, rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !errors.Is(err, refuse) || began != 7*base.SandboxWork || (ended == began) != (refuse == nil) || (len(binder.previewed) == 1) != (refuse == nil) {
			t.Errorf("%v: %d bytes of work began, %d ended, %d claims are previewed", err, began, ended, len(binder.previewed))
		}
	}
}

// A claim that would be refused for shortage is refused before it is admitted, and
// so before it is charged to a quota.
func TestShortageComesBeforeAdmission(t *testing.T) {
	short := &allocator.ShortageError{Set: "pool", Wanted: 1}
	binder := &fakeBinder{short: short}
	r := newTestREST(t, binder)
	ctx := registrytest.Context(t, "sandboxclaims")
	admitted := 0
	admit := func(context.Context, runtime.Object) error { admitted++; return nil }

	if _, err := r.Create(ctx, registrytest.NewSandboxClaim("mine"), admit, &metav1.CreateOptions{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("create: got %v", err)
	}
	applied := rest.DefaultUpdatedObjectInfo(registrytest.NewSandboxClaim("mine"))
	if _, _, err := r.Update(ctx, "mine", applied, admit, rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("apply: got %v", err)
	}
	if admitted != 0 || len(binder.created) != 0 {
		t.Errorf("admitted %d, created %d", admitted, len(binder.created))
	}
	binder.short = nil
	if _, err := r.Create(ctx, registrytest.NewSandboxClaim("mine"), admit, &metav1.CreateOptions{}); err != nil || admitted != 1 {
		t.Errorf("with stock: %v, admitted %d", err, admitted)
	}
}
