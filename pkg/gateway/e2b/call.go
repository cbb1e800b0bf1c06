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
	"github.com/sandlot-io/sandlot/pkg/client"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// tokenTimeout is how long an access token is asked for.
const tokenTimeout = 15 * time.Second

// call is one request that has a key.
type call struct {
	api    *API
	w      http.ResponseWriter
	r      *http.Request
	caller apikeys.Caller
	// agents acts for the team.
	agents typed.AgentsV1alpha1Interface
	// release gives back the place of the request. It may be called before the request ends,
	// and more than once.
	release func()
	// fit is how many objects of a list are read at a time since a page was too large.
	fit int64
}

// stopped is called when a sandbox was paused or has ended, before that is answered: a
// client that hears of it does not reach the sandbox here any more.
func (c *call) stopped() {
	if c.api.Stopped != nil {
		c.api.Stopped(c.r.Context(), c.r.PathValue("id"))
	}
}

func (c *call) now() time.Time { return c.api.Clock.Now() }

// sandbox returns the sandbox of the id in the path. One of another team, one that has
// ended, and one that never was are alike.
func (c *call) sandbox() (*v1alpha1.Sandbox, error) {
	return c.sandboxOf(c.r.PathValue("id"))(c.r.Context())
}

// sandboxOf returns what reads the sandbox of an id.
func (c *call) sandboxOf(id string) func(context.Context) (*v1alpha1.Sandbox, error) {
	return func(ctx context.Context) (*v1alpha1.Sandbox, error) { return c.find(ctx, id) }
}

func (c *call) find(ctx context.Context, id string) (*v1alpha1.Sandbox, error) {
	missing := &Error{Code: http.StatusNotFound, Message: "there is no sandbox " + quoted(id)}
	namespace, claim, ok := mapping.ParseSandboxID(id)
	if !ok || namespace != c.caller.Team {
		return nil, missing
	}
	selector := labels.SelectorFromSet(labels.Set{v1alpha1.LabelClaimName: claim}).String()
	options := metav1.ListOptions{LabelSelector: selector, Limit: smallPage}
	for reads := 1; ; reads++ {
		var list v1alpha1.SandboxList
		var found *v1alpha1.Sandbox
		err := c.list(ctx, "sandboxes", options, &list, func() {
			for i := range list.Items {
				sb := &list.Items[i]
				if of, ok := idOf(sb); ok && of == id && mapping.StateOf(sb, c.now()) != mapping.StateGone {
					one := *sb // which keeps none of the others in memory
					found = &one
					return
				}
			}
		})
		switch {
		case err != nil:
			return nil, err
		case found != nil:
			return found, nil
		case list.Continue == "":
			return nil, missing
		case reads == maxPages:
			return nil, &Error{Code: http.StatusConflict, Message: "too many sandboxes have the label of the claim of sandbox " + quoted(id)}
		case reads == 1:
			release, err := c.listing()
			if err != nil {
				return nil, err
			}
			defer release()
		}
		options.Continue = list.Continue
	}
}

// token returns the access token of the runtime in a sandbox, which stands in no object.
func (c *call) token(ctx context.Context, sb *v1alpha1.Sandbox) (string, error) {
	return TokenOf(ctx, c.agents, sb.Namespace, sb.Labels[v1alpha1.LabelClaimName], sb.Name, sb.UID)
}

// TokenOf returns the access token of the runtime in the sandbox of a name and UID that
// belongs to a claim; empty if it has none. Where the answer is lost it is asked for again,
// for a while.
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

// made is the answer to create, connect and resume.
func (c *call) made(sb *v1alpha1.Sandbox, id, templateID, token string) *mapping.Made {
	made := &mapping.Made{
		TemplateID: templateID, SandboxID: id, EnvdVersion: c.api.EnvdVersion, EnvdAccessToken: token, Domain: c.api.Domain,
	}
	if v1alpha1.IsE2BPrivate(sb) {
		traffic := mapping.TrafficToken(token)
		made.TrafficAccessToken = &traffic
	}
	return made
}

// idOf returns the id of a sandbox. ok is false if its claim was not created by this API.
func idOf(sb *v1alpha1.Sandbox) (id string, ok bool) {
	id, ok = v1alpha1.IsE2B(sb)
	return id, ok && mapping.IsClaimName(sb.Labels[v1alpha1.LabelClaimName])
}

// quoted is what a client sent, so short that it can be repeated.
func quoted(s string) string {
	if len(s) > 128 {
		s = s[:128] + "..."
	}
	return s
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }
