// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// tokenTimeout is how long a read of an access token may take.
const tokenTimeout = 15 * time.Second

// call is one HTTP request that is being handled.
type call struct {
	api    *API
	w      http.ResponseWriter
	r      *http.Request
	caller apikeys.Caller
	// cluster reads and writes objects of the caller's team.
	cluster *teamClient
	// release releases the slot of the request. It may be called before the request ends, and more
	// than once.
	release func()
}

// checkKey returns an error if the key of the caller was revoked since the request began. It is called when the
// request has waited, for the rest of its body or for a sandbox.
func (c *call) checkKey() error {
	if err := c.api.options.Keys.Check(c.r.Context(), c.caller); err != nil {
		return authenticationError(c.r, err)
	}
	return nil
}

// waitUntilStopped waits until the proxy of this gateway knows that the sandbox of the id in the path
// does not run. It is called before a pause or a delete is answered, so that the client does not reach
// the sandbox after the response.
func (c *call) waitUntilStopped() {
	if c.api.options.WaitUntilStopped != nil {
		c.api.options.WaitUntilStopped(c.r.Context(), c.r.PathValue("id"))
	}
}

// patchByID writes the change that decide returns for the sandbox of the id in the path. It returns the
// sandbox before and after the write. It takes requestTimeout at most, also where the request waits for the
// sandbox afterwards.
func (c *call) patchByID(decide func(*v1alpha1.Sandbox) (*mapping.Change, error)) (before, after *v1alpha1.Sandbox, err error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), requestTimeout)
	defer cancel()
	return c.cluster.patchWith(ctx, c.cluster.getterByID(c.r.PathValue("id")), decide)
}

// token returns the access token of the runtime in a sandbox. No object contains it.
func (c *call) token(ctx context.Context, sb *v1alpha1.Sandbox) (string, error) {
	return TokenOf(ctx, c.cluster.agents, sb.Namespace, sb.Labels[v1alpha1.LabelClaimName], sb.Name, sb.UID)
}

// TokenOf returns the access token of the runtime in the sandbox of a name and UID that belongs to a
// claim. It is empty if the sandbox has none. If the response is lost, TokenOf asks again, for a while.
func TokenOf(ctx context.Context, agents typed.AgentsV1alpha1Interface, namespace, claim, name string, uid types.UID) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	access, err := client.RuntimeAccess(ctx, agents, &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: claim}}, name)
	if err != nil {
		return "", err
	}
	for _, one := range access {
		if one.UID == uid {
			return one.AccessToken, nil
		}
	}
	return "", apierrors.NewNotFound(v1alpha1.Resource("sandboxes"), name)
}
