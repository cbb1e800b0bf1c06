// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// What releases ask of etcd and of webhooks at the same time, also in a dry run: deletesAtOnce sandboxes of one release,
// namespaceDeletes of the releases in a namespace, and allDeletes of all.
const deletesAtOnce, namespaceDeletes, allDeletes = 16, 32, 128

// AdmitDelete returns the admission of the deletion of a sandbox by the user of ctx, as
// admission does with every deletion of one.
type AdmitDelete func(ctx context.Context, namespace, name string, options *metav1.DeleteOptions) rest.ValidateObjectFunc

// ReleaseREST serves the release of sandboxes: see v1alpha1.SandboxClaimRelease. They are
// deleted one by one, as their user would delete them. A release whose time is over
// answers with what it has done, and the same request once more continues it.
type ReleaseREST struct {
	holdings
	admit AdmitDelete
	slots *fairness.Slots // of namespaces
}

var _ rest.NamedCreater = &ReleaseREST{}

// NewReleaseREST returns the release of the sandboxes in one store that belong to the
// claims in another.
func NewReleaseREST(claims, sandboxes *genericregistry.Store, admit AdmitDelete) *ReleaseREST {
	return &ReleaseREST{holdings: holdings{claims, sandboxes}, admit: admit, slots: fairness.NewSlots(allDeletes, namespaceDeletes)}
}

// New returns an empty release.
func (*ReleaseREST) New() runtime.Object { return &v1alpha1.SandboxClaimRelease{} }

// Destroy does nothing: the storage underneath belongs to the main resources.
func (*ReleaseREST) Destroy() {}

// Create releases sandboxes of the claim of a name.
//
// The claim has to be Completed. One that is not would take others in their place, or, if
// it takes all or nothing, end without any.
func (r *ReleaseREST) Create(ctx context.Context, name string, obj runtime.Object, admit rest.ValidateObjectFunc,
	options *metav1.CreateOptions) (runtime.Object, error) {
	release, ok := obj.(*v1alpha1.SandboxClaimRelease)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a SandboxClaimRelease, got %T", obj))
	}
	if err := sameName(release, name); err != nil {
		return nil, err
	}
	if errs := validation.ValidateSandboxClaimRelease(release); len(errs) > 0 {
		return nil, invalidRelease(name, errs...)
	}
	if admit != nil {
		if err := admit(ctx, release.DeepCopy()); err != nil {
			return nil, err
		}
	}
	claim, err := r.completed(ctx, name, release)
	if err != nil {
		return nil, err
	}
	bound, err := r.asked(ctx, claim, release)
	if err != nil {
		return nil, err
	}
	released, remaining, err := r.delete(ctx, claim, bound, options.DryRun)
	if len(options.DryRun) == 0 && len(released) > 0 {
		addAuditAnnotations(ctx, claim, released)
	}
	if err != nil {
		if len(released) > 0 {
			base.Warn(ctx, []string{fmt.Sprintf("%d sandboxes of claim %s were released before this error", len(released), name)})
		}
		return nil, err
	}
	answer := &v1alpha1.SandboxClaimRelease{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name},
		Spec:       release.Spec,
		Status:     v1alpha1.SandboxClaimReleaseStatus{Remaining: remaining},
	}
	for _, sb := range released {
		answer.Status.Released = append(answer.Status.Released, sb.Name)
	}
	return answer, nil
}

func invalidRelease(name string, errs ...*field.Error) error {
	return apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("SandboxClaimRelease").GroupKind(), name, errs)
}

// completed reads the claim, and refuses one that may not be released as asked.
func (r *ReleaseREST) completed(ctx context.Context, name string, release *v1alpha1.SandboxClaimRelease) (*v1alpha1.SandboxClaim, error) {
	claim, err := r.claim(ctx, name, release.Spec.ClaimUID)
	if err == nil && claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		err = conflict(name, "the claim is not Completed yet; a shorter spec.claimTimeout ends it with what it has")
	}
	return claim, err
}

// asked returns the sandboxes of a claim that a release is about and that are not being
// deleted yet, ordered by name.
func (r *ReleaseREST) asked(ctx context.Context, claim *v1alpha1.SandboxClaim, release *v1alpha1.SandboxClaimRelease) ([]*v1alpha1.Sandbox, error) {
	names := release.Spec.SandboxNames
	bound, unknown, err := r.bound(ctx, claim, names, func(sb *v1alpha1.Sandbox) bool {
		return sb.Labels[v1alpha1.LabelReservedFailedSandbox] == ""
	})
	if err != nil {
		return nil, err
	}
	for _, sb := range claim.Status.Sandboxes { // those that are gone stay in its status
		unknown.Delete(sb.Name)
	}
	if wrong := firstUnknown(claim, names, unknown); wrong != nil {
		return nil, invalidRelease(claim.Name, wrong)
	}
	return slices.DeleteFunc(bound, func(sb *v1alpha1.Sandbox) bool { return sb.DeletionTimestamp != nil }), nil
}

// delete deletes sandboxes of a claim for as long as there is time to answer. It returns
// which, in their order, and how many it did not come to. After an error it continues with
// the others, and returns the first error.
func (r *ReleaseREST) delete(ctx context.Context, claim *v1alpha1.SandboxClaim, bound []*v1alpha1.Sandbox, dryRun []string) (
	released []v1alpha1.ClaimedSandbox, remaining int32, err error) {
	within, cancel := inTimeToAnswer(ctx)
	defer cancel()
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "delete", APIGroup: v1alpha1.GroupName, APIVersion: v1alpha1.SchemeGroupVersion.Version,
		Resource: "sandboxes", Namespace: claim.Namespace,
	})
	var late atomic.Int32
	var mu sync.Mutex
	var deletes errgroup.Group
	deletes.SetLimit(deletesAtOnce)
	for _, sb := range bound {
		deletes.Go(func() error {
			end, err := r.slots.Wait(within, claim.Namespace)
			if err != nil {
				late.Add(1)
				return nil
			}
			defer end()
			deleted, err := r.deleteOne(ctx, claim, sb, dryRun)
			if deleted {
				mu.Lock()
				defer mu.Unlock()
				released = append(released, v1alpha1.ClaimedSandbox{Name: sb.Name})
			}
			return err
		})
	}
	err = cmp.Or(deletes.Wait(), ctx.Err())
	slices.SortFunc(released, func(a, b v1alpha1.ClaimedSandbox) int { return cmp.Compare(a.Name, b.Name) })
	return released, late.Load(), err
}

// inTimeToAnswer ends before ctx does, by what is needed to answer.
func inTimeToAnswer(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(deadline.Sub(clock.RealClock{}.Now())/5, 2*time.Second)))
}

// errNotBound means that a sandbox is not bound to the claim that releases it.
var errNotBound = errors.New("the sandbox is not bound to the claim")

// deleteOne deletes a sandbox, unless it is gone or no longer bound to the claim. The store
// asks that of the very revision which it deletes.
func (r *ReleaseREST) deleteOne(ctx context.Context, claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox, dryRun []string) (bool, error) {
	options := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(sb.UID)), DryRun: dryRun}
	admit := r.admit(ctx, sb.Namespace, sb.Name, options)
	var denied error
	_, _, err := r.sandboxes.Delete(ctx, sb.Name, func(ctx context.Context, obj runtime.Object) error {
		if now, ok := obj.(*v1alpha1.Sandbox); !ok || !v1alpha1.IsBoundTo(now, claim) {
			return errNotBound
		}
		denied = admit(ctx, obj)
		return denied
	}, options)
	switch {
	case denied != nil:
		return false, denied
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), errors.Is(err, errNotBound): // a conflict is another UID
		return false, nil
	}
	return err == nil, err
}
