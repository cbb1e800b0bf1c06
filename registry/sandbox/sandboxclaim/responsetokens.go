// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// The response to the create of a claim can have the access tokens of the runtimes, which saves a
// request to the subresource runtimeaccess. It requires the same right and passes the same
// admission as that request. The tokens are no part of the claim: they are sent in a header.

// auditTokens is the annotation of an audit event that lists the sandboxes whose access tokens
// the response to the create of a claim has.
const auditTokens = v1alpha1.SandlotKeyPrefix + "runtime-access"

// ResponseTokens are the access tokens in the response to the create of a claim. The create fills
// them in before it returns.
type ResponseTokens struct {
	// bySandbox has them by names of sandboxes.
	bySandbox map[string]string
	// withheld is set if admission changed the request, so that no tokens are returned.
	withheld bool
}

// BySandbox returns the tokens by sandbox name; empty if there are none to return.
func (t *ResponseTokens) BySandbox() map[string]string { return t.bySandbox }

type responseTokensKey struct{}

// WithResponseTokens returns a context in which the create of a claim fills in tokens.
func WithResponseTokens(ctx context.Context, tokens *ResponseTokens) context.Context {
	return context.WithValue(ctx, responseTokensKey{}, tokens)
}

// tokensOf returns what a create is to fill in; nil if it is not asked for tokens.
func tokensOf(ctx context.Context) *ResponseTokens {
	tokens, _ := ctx.Value(responseTokensKey{}).(*ResponseTokens)
	return tokens
}

// AdmitAccess puts a request for the access to the runtimes of a claim through admission,
// which may change it.
type AdmitAccess func(ctx context.Context, access *v1alpha1.SandboxClaimRuntimeAccess, options *metav1.CreateOptions) error

// TokenResponder adds access tokens to the response of a create.
type TokenResponder struct {
	// Authorizer is asked who may create sandboxclaims/runtimeaccess.
	Authorizer authorizer.UnconditionalAuthorizer
	// Admit is the admission of such requests.
	Admit AdmitAccess
	// Runtimes has the tokens.
	Runtimes Runtimes
}

// admitted admits only claims whose maker may ask for their access tokens, before admit
// does: a refusal binds nothing and charges no quota.
func (a *TokenResponder) admitted(tokens *ResponseTokens, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if claim, ok := obj.(*v1alpha1.SandboxClaim); ok {
			if err := a.authorize(ctx, claim); err != nil {
				return err
			}
			access := &v1alpha1.SandboxClaimRuntimeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}}
			access.Spec.ClaimUID = claim.UID
			asked := access.Spec
			if err := a.Admit(ctx, access, options); err != nil {
				return err
			}
			tokens.withheld = !apiequality.Semantic.DeepEqual(asked, access.Spec)
		}
		if admit == nil {
			return nil
		}
		return admit(ctx, obj)
	}
}

// authorize fails with 403 if the user may not ask for the tokens. As with every create, the
// attributes have no name. So the authorizer caches one answer for all claims of the user, and
// no user can make it ask the cluster for each claim.
func (a *TokenResponder) authorize(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	attributes := authorizer.AttributesRecord{
		Verb: "create", Namespace: claim.Namespace, APIGroup: v1alpha1.GroupName, APIVersion: v1alpha1.SchemeGroupVersion.Version,
		Resource: "sandboxclaims", Subresource: "runtimeaccess", ResourceRequest: true,
	}
	attributes.User, _ = genericapirequest.UserFrom(ctx)
	decision, reason, err := a.Authorizer.Authorize(ctx, attributes)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("authorizing the access to runtimes: %w", err))
	case reason != "":
		reason = ": " + reason
	}
	return apierrors.NewForbidden(v1alpha1.Resource("sandboxclaims"), claim.Name, fmt.Errorf(
		"the parameter %s requires the right to create sandboxclaims/runtimeaccess in the namespace %q, for all names%s",
		v1alpha1.RuntimeAccessParameter, claim.Namespace, reason))
}

// fill fills in the tokens of a claim that was created, and notes that in the audit event. It
// leaves out claims that are not Completed, those with too many sandboxes, and those of which a
// token cannot be computed: the subresource serves them, or returns the error.
func (a *TokenResponder) fill(ctx context.Context, tokens *ResponseTokens, created runtime.Object) {
	claim, ok := created.(*v1alpha1.SandboxClaim)
	if !ok || tokens.withheld || claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		return
	}
	bound := claim.Status.Sandboxes
	if len(bound) == 0 || len(bound) > v1alpha1.MaxResponseTokens {
		return
	}
	all, errs := make([]string, len(bound)), make([]error, len(bound))
	var reads sync.WaitGroup // each may read from etcd what no watch has reported yet
	for i, sb := range bound {
		reads.Go(func() { all[i], errs[i] = a.Runtimes.TokenIn(ctx, claim, sb) })
	}
	reads.Wait()
	if err := errors.Join(errs...); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read access tokens for the response to a create", "claim", klog.KObj(claim))
		return
	}
	bySandbox := make(map[string]string, len(bound))
	for i, sb := range bound {
		bySandbox[sb.Name] = all[i]
	}
	tokens.bySandbox = bySandbox
	audit.AddAuditAnnotation(ctx, auditTokens, auditedSandboxes(bound))
}
