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

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

const (
	// maxIdempotencyKey is how long an Idempotency-Key may be.
	maxIdempotencyKey = 256
	// noticeable is how long a create may take before the timeout begins anew when the
	// sandbox is there.
	noticeable = 2 * time.Second
	// createTimeout bounds a create whose client waits for ever.
	createTimeout = mapping.MaxWait * time.Second
	// cleanupTimeout bounds what is done for a client that is gone.
	cleanupTimeout = 15 * time.Second
)

// create is one claim, and answered when that has its sandbox.
func (c *call) create() error {
	var body mapping.NewSandbox
	if err := c.read(&body); err != nil {
		return err
	}
	claimName, retryKey, err := c.claimNameAndRetryKey()
	if err != nil {
		return err
	}
	began := c.now()
	order, err := mapping.NewOrder(&body, c.caller.KeyID, c.api.Limits, began)
	if err != nil {
		return err
	}
	if order.MayOutlastTimeout {
		// Or the sandbox would come at its end. The timeout begins when it is there.
		order.Begin(began.Add(createTimeout))
	}
	order.Claim.Namespace, order.Claim.Name = c.caller.Team, claimName
	ctx, cancel := context.WithTimeout(c.r.Context(), createTimeout)
	defer cancel()
	tokens := map[string]string{}
	claim, err := c.claim(ctx, order, retryKey, tokens)
	if err != nil {
		return err
	}
	bound := claim.Status.Sandboxes
	if len(bound) == 0 {
		return ended(retryKey)
	}
	// What is needed of the sandbox stands in the claim, which saves reading it.
	sb := &v1alpha1.Sandbox{}
	sb.Namespace, sb.Name, sb.UID = claim.Namespace, bound[0].Name, bound[0].UID
	sb.Labels = map[string]string{v1alpha1.LabelClaimName: claim.Name}
	sb.Annotations = claim.Spec.Annotations
	token, answered := tokens[sb.Name]
	if !answered {
		token, err = c.token(ctx, sb)
	}
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return ended(retryKey)
	}
	if err != nil {
		return c.withdraw(claim, retryKey, err)
	}
	if order.MayOutlastTimeout || c.now().Sub(began) > noticeable {
		if err := c.beginAgain(ctx, order, claim); err != nil {
			return c.withdraw(claim, retryKey, err)
		}
	}
	id := v1alpha1.E2BSandboxID(claim.Namespace, claim.Name)
	writeJSON(c.w, http.StatusCreated, c.made(sb, id, body.TemplateID, token))
	return nil
}

// claimNameAndRetryKey returns the name of the claim, and the key by which a retry finds it. Without an
// Idempotency-Key the name is random, and there is no key. With one, both follow from that and from the
// API key, so that a retry finds what it has made, and the id cannot be derived from one of them
// without the other.
func (c *call) claimNameAndRetryKey() (claimName, retryKey string, err error) {
	given := c.r.Header.Values("Idempotency-Key")
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
		mac := hmac.New(sha256.New, []byte(c.r.Header.Get("X-Api-Key")))
		mac.Write([]byte("idempotency\x00" + given[0]))
		sum = mac.Sum(nil)
		retryKey = "e2b-" + hex.EncodeToString(sum[16:])
	}
	return mapping.ClaimName(sum), retryKey, nil
}

// claim makes the claim and waits until it has its sandbox. A client that goes away gives
// it back, unless it has a key to come again with. tokens gets the access token, where the
// answer to the create has it.
func (c *call) claim(ctx context.Context, order *mapping.Order, key string, tokens map[string]string) (*v1alpha1.SandboxClaim, error) {
	options := client.Options{
		Key: key, User: v1alpha1.E2BUser(c.caller.Team), AccessTokens: tokens, OnGiveUp: client.GiveUpGiveBack, GiveUpTimeout: cleanupTimeout,
	}
	if key != "" {
		options.OnGiveUp = client.GiveUpKeep
	}
	claim, err := client.ClaimAndWait(ctx, c.agents, order.Claim, options)
	var short *client.IncompleteError
	var unsure *client.GivenUpError
	switch {
	case errors.As(err, &short):
		return nil, c.withdraw(short.Claim, "", fromIncomplete(short))
	case errors.As(err, &unsure):
		return nil, internal(c.r, err)
	case apierrors.IsAlreadyExists(err):
		return nil, &Error{Code: http.StatusConflict, Message: "this Idempotency-Key was used for another request; take a new one"}
	case apierrors.IsInvalid(err) && isMissing(err):
		return nil, &Error{Code: http.StatusBadRequest, Message: fmt.Sprintf("Template or Checkpoint not found: there is no SandboxSet or SandboxTemplate %s in namespace %s",
			quoted(order.Claim.Spec.TemplateName), c.caller.Team)}
	}
	return claim, err
}

// ended is the answer to a create whose sandbox is gone. With a key that is a repeated one.
func ended(key string) error {
	if key == "" {
		return &Error{Code: http.StatusServiceUnavailable, Message: "the sandbox was deleted while it was handed out: create another one", RetryAfter: time.Second}
	}
	return &Error{Code: http.StatusConflict, Message: "the sandbox of this request has ended already; for another one take a new Idempotency-Key"}
}

// withdraw gives back a claim that the client does not learn of, and returns why.
func (c *call) withdraw(claim *v1alpha1.SandboxClaim, key string, why error) error {
	if key != "" {
		return why // it is found again by its key
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), cleanupTimeout)
	defer cancel()
	if err := client.GiveBack(ctx, c.agents, claim); err != nil {
		return errors.Join(why, fmt.Errorf("giving it back: %w", err))
	}
	return why
}

// beginAgain lets the timeout begin now, for a sandbox that took long to come. One that has
// another than its claim says was answered before: this is a retry.
func (c *call) beginAgain(ctx context.Context, order *mapping.Order, claim *v1alpha1.SandboxClaim) error {
	if order.Timeout == 0 {
		return nil
	}
	_, _, err := c.changeOf(ctx, c.sandboxOf(v1alpha1.E2BSandboxID(claim.Namespace, claim.Name)), func(sb *v1alpha1.Sandbox) (*mapping.Change, error) {
		if mapping.Begun(sb, claim) {
			return mapping.Nothing(sb), nil
		}
		return mapping.SetTimeout(sb, c.now().Add(order.Timeout)), nil
	})
	return err
}

// fromIncomplete is what a claim that ended without a sandbox means.
func fromIncomplete(e *client.IncompleteError) error {
	told := &Error{Code: http.StatusInternalServerError, Message: "no sandbox: " + e.Message}
	switch e.Reason {
	case v1alpha1.ReasonTimeoutReached:
		told.Code, told.RetryAfter = http.StatusTooManyRequests, time.Second
	case v1alpha1.ReasonSandboxSetNotFound, v1alpha1.ReasonSandboxTemplateNotFound:
		told.Code, told.Message = http.StatusBadRequest, "Template or Checkpoint not found: "+e.Message
	case v1alpha1.ReasonEnvVarsInjectionRejected, v1alpha1.ReasonVolumeClaimTemplatesRejected,
		v1alpha1.ReasonInplaceUpdateRejected, v1alpha1.ReasonTooLarge, v1alpha1.ReasonInvalidMetadata, v1alpha1.ReasonMountFailed:
		told.Code = http.StatusBadRequest
	}
	return told
}

// isMissing reports whether a claim is invalid because nothing has the name that it asks
// for.
func isMissing(err error) bool {
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
