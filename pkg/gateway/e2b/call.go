// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/keys"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// call is one request that has a key.
type call struct {
	api    *API
	w      http.ResponseWriter
	r      *http.Request
	caller keys.Caller
	// agents acts for the team.
	agents typed.AgentsV1alpha1Interface
}

// stopped is called when a sandbox was paused or has ended, before that is answered: whoever
// hears of it does not reach the sandbox here any more.
func (c *call) stopped() {
	if c.api.Stopped != nil {
		c.api.Stopped(c.r.Context(), c.r.PathValue("id"))
	}
}

func (c *call) now() time.Time { return c.api.Clock.Now() }

// sandbox returns the sandbox of the id in the path. One of another team, one that has
// ended, and one that never was are alike.
func (c *call) sandbox() (*v1alpha1.Sandbox, error) {
	return c.sandboxOf(c.r.Context(), c.r.PathValue("id"))
}

func (c *call) sandboxOf(ctx context.Context, id string) (*v1alpha1.Sandbox, error) {
	missing := &Error{Code: http.StatusNotFound, Message: "there is no sandbox " + quoted(id)}
	namespace, claim, ok := v1alpha1.SplitE2BSandboxID(id)
	if !ok || namespace != c.caller.Team || !isCode(claim) {
		return nil, missing
	}
	list, err := c.agents.Sandboxes(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelClaimName: claim}).String(),
	})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		sb := &list.Items[i]
		if of, ok := v1alpha1.IsE2B(sb); ok && of == id && mapping.StateOf(sb, c.now()) != mapping.StateGone {
			return sb, nil
		}
	}
	return nil, missing
}

// change writes a change of a sandbox.
func (c *call) change(ctx context.Context, sb *v1alpha1.Sandbox, change *mapping.Change) (*v1alpha1.Sandbox, error) {
	if change.IsEmpty() {
		return sb, nil
	}
	patch, err := change.Patch()
	if err != nil {
		return nil, err
	}
	changed, err := c.agents.Sandboxes(sb.Namespace).Patch(ctx, sb.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil, &Error{Code: http.StatusNotFound, Message: "the sandbox has ended"}
	}
	return changed, err
}

// token returns the access token of the runtime in a sandbox, which stands in no object.
func (c *call) token(ctx context.Context, sb *v1alpha1.Sandbox) (string, error) {
	return Token(ctx, c.agents, sb)
}

// Token returns the access token of the runtime in a sandbox; empty if it has none.
func Token(ctx context.Context, agents typed.AgentsV1alpha1Interface, sb *v1alpha1.Sandbox) (string, error) {
	return TokenOf(ctx, agents, sb.Namespace, sb.Labels[v1alpha1.LabelClaimName], sb.Name, sb.UID)
}

// TokenOf is Token of the sandbox of a name and UID that belongs to a claim.
func TokenOf(ctx context.Context, agents typed.AgentsV1alpha1Interface, namespace, claim, name string, uid types.UID) (string, error) {
	answer, err := agents.SandboxClaims(namespace).RuntimeAccess(ctx, claim,
		&v1alpha1.SandboxClaimRuntimeAccess{Spec: v1alpha1.SandboxClaimRuntimeAccessSpec{SandboxNames: []string{name}}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	for _, one := range answer.Status.Sandboxes {
		if one.UID == uid {
			return one.AccessToken, nil
		}
	}
	return "", apierrors.NewNotFound(v1alpha1.Resource("sandboxes"), name)
}

// made is the answer to create, connect and resume.
func (c *call) made(sb *v1alpha1.Sandbox, id, templateID, token string) *mapping.Made {
	made := &mapping.Made{
		TemplateID: templateID, SandboxID: id, EnvdVersion: c.api.EnvdVersion, EnvdAccessToken: token, Domain: c.api.Domain,
	}
	if sb.Annotations[v1alpha1.AnnotationE2BPrivate] == "true" {
		traffic := mapping.TrafficToken(token)
		made.TrafficAccessToken = &traffic
	}
	return made
}

// isCode reports whether a name is one that claims of this API have.
func isCode(name string) bool {
	if len(name) != codeLength || name[0] != codePrefix {
		return false
	}
	for _, b := range []byte(name[1:]) {
		if (b < 'a' || b > 'z') && (b < '2' || b > '7') {
			return false
		}
	}
	return true
}

// quoted is what a client sent, so short that it can be repeated.
func quoted(s string) string {
	if len(s) > 128 {
		s = s[:128] + "..."
	}
	return s
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }
