// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/apiserver/ownerrefs"
	"github.com/sandlot-io/sandlot/pkg/apiserver/quota"
	"github.com/sandlot-io/sandlot/pkg/apiserver/scheme"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
)

var (
	sandboxKind     = v1alpha1.SchemeGroupVersion.WithKind("Sandbox")
	sandboxResource = v1alpha1.SchemeGroupVersion.WithResource("sandboxes")
	claimResource   = v1alpha1.SchemeGroupVersion.WithResource("sandboxclaims")
	accessKind      = v1alpha1.SchemeGroupVersion.WithKind("SandboxClaimRuntimeAccess")
)

// admitter puts the sandboxes that are made for claims, inside a transaction,
// through the admission that every created sandbox goes through: webhooks,
// policies, the end of a namespace, quotas. Otherwise a claim would be the way
// around all of them.
type admitter struct {
	admission admission.Interface
	objects   admission.ObjectInterfaces
}

// newAdmitter returns nil where there is no admission.
func newAdmitter(chain admission.Interface, equivalents runtime.EquivalentResourceMapper) *admitter {
	if chain == nil {
		return nil
	}
	return &admitter{
		admission: chain,
		objects: &admission.RuntimeObjectInterfaces{
			ObjectCreater: scheme.Scheme, ObjectTyper: scheme.Scheme, ObjectDefaulter: scheme.Scheme, ObjectConvertor: scheme.Scheme,
			EquivalentResourceMapper: equivalents,
		},
	}
}

// admit admits all, and may change them, or says why one of them must not be. The last one is
// admitted after all others, and a quota is charged for charge sandboxes with it: see
// quota.WithCharge.
func (a *admitter) admit(ctx context.Context, claim *v1alpha1.SandboxClaim, made []*v1alpha1.Sandbox, charge int) error {
	if a == nil || len(made) == 0 {
		return nil
	}
	by, err := requester(ctx, claim)
	if err != nil {
		return err
	}
	ctx = ownerrefs.ByServer(ctx)
	last := len(made) - 1
	uncharged := quota.WithCharge(ctx, 0)
	var others errgroup.Group
	others.SetLimit(admissionsAtOnce)
	for _, sb := range made[:last] {
		others.Go(func() error { return a.admitOne(uncharged, by, sb) })
	}
	if err := others.Wait(); err != nil {
		return err
	}
	return a.admitOne(quota.WithCharge(ctx, charge), by, made[last])
}

// admissionsAtOnce bounds what one claim asks of webhooks at the same time.
const admissionsAtOnce = 16

// requester returns the user who asks for sandboxes. In the background there is no request any
// more: then it is the creator of the claim. It fails if that user is not recorded in full,
// because a policy may deny by groups or extra fields.
func requester(ctx context.Context, claim *v1alpha1.SandboxClaim) (user.Info, error) {
	if info, ok := genericapirequest.UserFrom(ctx); ok {
		return info, nil
	}
	return sandboxclaim.IdentityOf(claim)
}

func (a *admitter) admitOne(ctx context.Context, by user.Info, sb *v1alpha1.Sandbox) error {
	name, namespace := sb.Name, sb.Namespace
	ctx = genericapirequest.WithNamespace(ctx, namespace)
	attributes := admission.NewAttributesRecord(sb, nil, sandboxKind, namespace, name, sandboxResource, "",
		admission.Create, &metav1.CreateOptions{}, false, by)
	if err := a.mutate(ctx, a.admission, attributes); err != nil {
		return err
	}
	sb.Status = podtemplate.StatusAtBirth(sb) // of the template as it is now
	errs := validation.ValidateSandbox(sb)
	meta := field.NewPath("metadata")
	if sb.Name != name {
		errs = append(errs, field.Invalid(meta.Child("name"), sb.Name, "was changed by admission"))
	}
	if sb.Namespace != namespace {
		errs = append(errs, field.Invalid(meta.Child("namespace"), sb.Namespace, "was changed by admission"))
	}
	if len(errs) > 0 {
		invalid := apierrors.NewInvalid(sandboxKind.GroupKind(), name, errs)
		invalid.ErrStatus.Message = "a sandbox for the claim, as admission made it: " + invalid.ErrStatus.Message
		return invalid
	}
	return a.validate(ctx, a.admission, attributes)
}

// mutate lets the mutating part of a chain change an object.
func (a *admitter) mutate(ctx context.Context, chain admission.Interface, attributes admission.Attributes) error {
	if mutating, ok := chain.(admission.MutationInterface); ok && mutating.Handles(attributes.GetOperation()) {
		return mutating.Admit(ctx, attributes, a.objects)
	}
	return nil
}

// validate asks the validating part of a chain about an object.
func (a *admitter) validate(ctx context.Context, chain admission.Interface, attributes admission.Attributes) error {
	if validating, ok := chain.(admission.ValidationInterface); ok && validating.Handles(attributes.GetOperation()) {
		return validating.Validate(ctx, attributes, a.objects)
	}
	return nil
}

// admitPodChange implements sandbox.AdmitPodChange. The sandbox is validated like a new one, also
// by policies and webhooks that see no updates. It charges no quota. Mutating admission does not
// run again, because it ran for the update.
func (a *admitter) admitPodChange(ctx context.Context, sb *v1alpha1.Sandbox, dryRun bool) error {
	if a == nil {
		return nil
	}
	by, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewInternalError(errors.New("admitting the pod of a sandbox: the request has no user"))
	}
	options := &metav1.CreateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	// In the group of the request, as a create there: a rule with matchPolicy Exact names one.
	group := base.GroupOf(ctx)
	attributes := admission.NewAttributesRecord(sb, nil, group.WithKind(sandboxKind.Kind), sb.Namespace, sb.Name, group.WithResource(sandboxResource.Resource), "",
		admission.Create, options, dryRun, by)
	return a.validate(quota.WithCharge(ownerrefs.ByServer(ctx), 0), admission.WithAudit(a.admission), attributes)
}

// admitDelete implements sandboxclaim.AdmitDelete: who releases a sandbox may do that
// where they may delete it, as far as admission has a say in it.
func (a *admitter) admitDelete(ctx context.Context, namespace, name string, options *metav1.DeleteOptions) rest.ValidateObjectFunc {
	if a == nil {
		return rest.ValidateAllObjectFunc
	}
	by, _ := genericapirequest.UserFrom(ctx)
	attributes := admission.NewAttributesRecord(nil, nil, sandboxKind, namespace, name, sandboxResource, "",
		admission.Delete, options, dryrun.IsDryRun(options.DryRun), by)
	return rest.AdmissionToValidateObjectDeleteFunc(a.admission, attributes, a.objects)
}

// admitAccess implements sandboxclaim.AdmitAccess: admission sees what it sees of a request to
// the subresource. What it annotates is in the audit event of the create.
func (a *admitter) admitAccess(ctx context.Context, access *v1alpha1.SandboxClaimRuntimeAccess, options *metav1.CreateOptions) error {
	if a == nil {
		return nil
	}
	by, _ := genericapirequest.UserFrom(ctx)
	attributes := admission.NewAttributesRecord(access, nil, accessKind, access.Namespace, access.Name, claimResource, "runtimeaccess",
		admission.Create, options, dryrun.IsDryRun(options.DryRun), by)
	chain := admission.WithAudit(a.admission)
	if err := a.mutate(ctx, chain, attributes); err != nil {
		return err
	}
	return a.validate(ctx, chain, attributes)
}
