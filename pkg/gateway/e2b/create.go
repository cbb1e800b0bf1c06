// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

const (
	// maxIdempotencyKey is how many bytes an Idempotency-Key may have.
	maxIdempotencyKey = 256
	// restartAfter is how long a create may take before the timeout of the sandbox is restarted when
	// the create is answered, or a part of the timeout if that is longer: while the cluster is slow, each
	// restart costs it two more requests.
	restartAfter = 2 * time.Second
	restartPart  = 20
	// createTimeout limits a create of a client that has no timeout of its own.
	createTimeout = mapping.MaxWait * time.Second
	// cleanupTimeout limits each of the two steps for a client that is gone: to wait for the claim that
	// is being created, and to give it back.
	cleanupTimeout = 9 * time.Second
)

// CleanupTimeout limits how long a create continues after its context has ended. A program that ends before
// may leave sandboxes that no client knows.
const CleanupTimeout = 2 * cleanupTimeout

// creation is the create of a sandbox.
type creation struct {
	call *call
	plan *mapping.CreatePlan
	// retryKey is the key by which a retry finds the claim; empty if there is none.
	retryKey string
	// claim is the claim as it was read last.
	claim *v1alpha1.SandboxClaim
}

// createSandbox creates a claim, and responds when the claim has its sandbox.
func createSandbox(c *call) error {
	var body mapping.CreateRequest
	if err := c.decodeBody(&body); err != nil {
		return err
	}
	claimName, retryKey, err := claimNameAndRetryKey(c.r.Header)
	if err != nil {
		return err
	}
	began := c.cluster.now()
	plan, err := mapping.NewCreatePlan(&body, c.caller.KeyID, c.api.options.Limits, began)
	if err != nil {
		return err
	}
	if plan.MayOutlastTimeout {
		// Give the claim the latest possible end. The timeout restarts when the create is answered.
		plan.SetTimeoutStart(began.Add(createTimeout))
	}
	plan.Claim.Namespace, plan.Claim.Name = c.caller.Team, claimName
	ctx, cancel := context.WithTimeout(c.r.Context(), createTimeout)
	defer cancel()
	if plan.MayWait {
		stopWaiting, ok := c.startWaiting()
		if !ok {
			return &Error{Code: http.StatusTooManyRequests, Message: "too many requests of this team wait for a sandbox", RetryAfter: time.Second}
		}
		defer stopWaiting()
	}
	create := &creation{call: c, plan: plan, retryKey: retryKey}
	tokens := map[string]string{}
	if err := create.claimSandbox(ctx, tokens); err != nil {
		return err
	}
	claim := create.claim
	bound := claim.Status.Sandboxes
	if len(bound) == 0 {
		// The claim had its sandbox, but the sandbox was deleted since: most often this is a retry.
		return sandboxGoneError(retryKey)
	}
	// The claim has all that the response needs, which saves reading the sandbox.
	sb := &v1alpha1.Sandbox{}
	sb.Namespace, sb.Name, sb.UID = claim.Namespace, bound[0].Name, bound[0].UID
	sb.Labels = map[string]string{v1alpha1.LabelClaimName: claim.Name}
	sb.Annotations = claim.Spec.Annotations
	token, err := create.token(ctx, sb, tokens)
	if err != nil {
		return err
	}
	if plan.MayOutlastTimeout || c.cluster.now().Sub(began) > max(restartAfter, plan.Timeout/restartPart) {
		if err := create.restartTimeout(ctx, bound[0]); err != nil {
			return create.giveBackUnlessKeyed(err)
		}
	}
	if err := create.confirmCaller(); err != nil {
		return err
	}
	id := v1alpha1.E2BSandboxID(claim.Namespace, claim.Name)
	writeJSON(c.w, http.StatusCreated, c.sandboxResponse(sb, id, body.TemplateID, token))
	return nil
}

// token returns the access token of the sandbox: the one that the answer to the create had, or that of the claim.
func (c *creation) token(ctx context.Context, sb *v1alpha1.Sandbox, returned map[string]string) (string, error) {
	if token, ok := returned[sb.Name]; ok {
		return token, nil
	}
	token, err := c.call.token(ctx, sb)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsInvalid(err):
		return "", sandboxGoneError(c.retryKey)
	case err != nil:
		return "", c.giveBackUnlessKeyed(err)
	}
	return token, nil
}

// confirmCaller gives the sandbox of a create back, and returns an error, if the client has gone or its key
// was revoked meanwhile.
func (c *creation) confirmCaller() error {
	r := c.call.r
	if err := r.Context().Err(); err != nil {
		return c.giveBackUnlessKeyed(err)
	}
	err := c.call.api.options.Keys.Check(r.Context(), c.call.caller)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, apikeys.ErrUnknownKey): // a retry key is of no use without the API key
		return c.giveBack(authenticationError(r, err))
	}
	return c.giveBackUnlessKeyed(authenticationError(r, err))
}

// claimNameAndRetryKey returns the name of the claim, and the key by which a retry finds it. Without an
// Idempotency-Key the name is random, and there is no key. With one, both follow from that and from the
// API key, so that a retry finds what it has made, and the id cannot be derived from one of them
// without the other.
func claimNameAndRetryKey(header http.Header) (claimName, retryKey string, err error) {
	given := header.Values("Idempotency-Key")
	var sum []byte
	switch {
	case len(given) == 0:
		sum = make([]byte, sha256.Size)
		if _, err := rand.Read(sum); err != nil {
			return "", "", err
		}
	case len(given) > 1 || given[0] == "" || len(given[0]) > maxIdempotencyKey:
		return "", "", &Error{Code: http.StatusBadRequest, Message: fmt.Sprintf("Idempotency-Key must be one value of 1 to %d bytes", maxIdempotencyKey)}
	default:
		mac := hmac.New(sha256.New, []byte(header.Get("X-Api-Key")))
		mac.Write([]byte("idempotency\x00" + given[0]))
		sum = mac.Sum(nil)
		retryKey = "e2b-" + hex.EncodeToString(sum[16:])
	}
	return mapping.ClaimName(sum), retryKey, nil
}

// claimSandbox creates the claim and waits until it has its sandbox. If the client goes away, the claim is given
// back, unless the client can retry with a key. tokens gets the access token, if the response to the
// create has it.
func (c *creation) claimSandbox(ctx context.Context, tokens map[string]string) error {
	options := client.Options{
		Key: c.retryKey, User: v1alpha1.E2BUser(c.call.caller.Team), AccessTokens: tokens, OnGiveUp: client.GiveUpGiveBack, GiveUpTimeout: cleanupTimeout,
	}
	if c.retryKey != "" {
		options.OnGiveUp = client.GiveUpKeep
	}
	claim, err := client.ClaimAndWait(ctx, c.call.cluster.agents, c.plan.Claim, options)
	var incomplete *client.IncompleteError
	var gaveUp *client.GivenUpError
	switch {
	case errors.As(err, &incomplete):
		// Also with a key, so that a retry does not find a claim that has failed.
		c.claim = incomplete.Claim
		return c.giveBack(fromIncomplete(incomplete))
	case errors.As(err, &gaveUp):
		if c.retryKey == "" && !gaveUp.GivenBack && (gaveUp.Claim != nil || !gaveUp.Known) {
			c.reportLeft(err)
		}
		if gaveUp.GivenBack || gaveUp.Known && gaveUp.Claim == nil {
			return unavailable(c.call.r, err)
		}
		return unanswered(c.call.r, err)
	case apierrors.IsAlreadyExists(err):
		return &Error{Code: http.StatusConflict, Message: "this Idempotency-Key was used for another request; take a new one"}
	case apierrors.IsInvalid(err) && isTemplateMissing(err):
		return &Error{Code: http.StatusBadRequest, Message: fmt.Sprintf("Template or Checkpoint not found: there is no SandboxSet or SandboxTemplate %s in namespace %s",
			quoted(c.plan.Claim.Spec.TemplateName), c.call.caller.Team)}
	}
	c.claim = claim
	return err
}

// sandboxGoneError is the error of a create whose claim has lost its sandbox. With a key it is a repeated
// create.
func sandboxGoneError(retryKey string) error {
	if retryKey == "" {
		return &Error{Code: http.StatusServiceUnavailable, Message: "the sandbox was deleted while it was handed out: create another one", RetryAfter: time.Second}
	}
	return &Error{Code: http.StatusConflict, Message: "the sandbox of this request has ended already; for another one take a new Idempotency-Key"}
}

// giveBackUnlessKeyed gives back the claim if the client has no key to find it by in a retry. It returns
// cause, the error that the client gets.
func (c *creation) giveBackUnlessKeyed(cause error) error {
	if c.retryKey != "" {
		return cause
	}
	return c.giveBack(cause)
}

// giveBack gives back the claim, which the client gets no response about, and returns cause.
func (c *creation) giveBack(cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.call.r.Context()), cleanupTimeout)
	defer cancel()
	if err := client.GiveBack(ctx, c.call.cluster.agents, c.claim); err != nil {
		c.reportLeft(err)
	}
	return cause
}

// reportLeft logs and counts that the claim may be left, although no client knows its sandbox.
func (c *creation) reportLeft(err error) {
	GiveBacksFailed.Inc()
	klog.FromContext(c.call.r.Context()).Error(err, "Failed to give back the claim of a create without a response", "claim", klog.KObj(c.plan.Claim))
}

// restartTimeout lets the timeout of a sandbox of the claim start now. If the timeout of the sandbox already
// differs from the claim's, an earlier try restarted it; restartTimeout leaves it.
func (c *creation) restartTimeout(ctx context.Context, sandbox v1alpha1.ClaimedSandbox) error {
	if c.plan.Timeout == 0 {
		return nil
	}
	id := v1alpha1.E2BSandboxID(c.claim.Namespace, c.claim.Name)
	_, _, err := c.call.cluster.patchWith(ctx, c.call.cluster.getterByUID(sandbox.Name, sandbox.UID, id), func(sb *v1alpha1.Sandbox) (*mapping.Change, error) {
		if mapping.StateOf(sb, c.call.cluster.now()) == mapping.StateGone {
			return nil, sandboxGoneError(c.retryKey)
		}
		if mapping.HasChangedTimeout(sb, c.claim) {
			return mapping.NoChange(sb), nil
		}
		return mapping.SetTimeout(sb, c.call.cluster.now().Add(c.plan.Timeout)), nil
	})
	if isNotFound(err) {
		return sandboxGoneError(c.retryKey)
	}
	return err
}

// fromIncomplete returns the *Error for a claim that ended without a sandbox.
func fromIncomplete(e *client.IncompleteError) error {
	apiErr := &Error{Code: http.StatusInternalServerError, Message: "no sandbox: " + e.Message}
	switch e.Reason {
	case v1alpha1.ReasonTimeoutReached:
		// SDKs repeat a 429, and each try may take another sandbox that fails.
		if e.Claim.Status.FailedReplicas == 0 {
			apiErr.Code, apiErr.RetryAfter = http.StatusTooManyRequests, time.Second
		}
	case v1alpha1.ReasonSandboxSetNotFound, v1alpha1.ReasonSandboxTemplateNotFound:
		apiErr.Code, apiErr.Message = http.StatusBadRequest, "Template or Checkpoint not found: "+e.Message
	case v1alpha1.ReasonEnvVarsInjectionRejected, v1alpha1.ReasonVolumeClaimTemplatesRejected,
		v1alpha1.ReasonInplaceUpdateRejected, v1alpha1.ReasonTooLarge, v1alpha1.ReasonInvalidMetadata, v1alpha1.ReasonMountFailed:
		apiErr.Code = http.StatusBadRequest
	}
	return apiErr
}

// isTemplateMissing reports whether a claim is invalid because there is no template of its name.
func isTemplateMissing(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "spec.templateName" {
			return true
		}
	}
	return false
}
