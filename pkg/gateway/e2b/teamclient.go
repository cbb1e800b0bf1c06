// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// maxTries is how often a sandbox is read and written that other clients write at the same time.
const maxTries = 8

// teamClient reads and writes objects of a team in the cluster, for one request.
type teamClient struct {
	api *API
	// agents acts for the team.
	agents typed.AgentsV1alpha1Interface
	team   string
	// maxPageSize is how many objects of a list are read at a time after a page was too large. 0 is
	// any number.
	maxPageSize int64
	// hasLostWrite is true if the connection of a write was lost. The sandbox may be as this request wants it
	// for that reason.
	hasLostWrite bool
}

func (t *teamClient) now() time.Time { return t.api.options.Clock.Now() }

// takeListSlot takes a slot for a request that reads a list.
func (t *teamClient) takeListSlot() (release func(), err error) {
	release, ok := t.api.listSlots.Take(t.team)
	if !ok {
		return nil, &Error{Code: http.StatusTooManyRequests, Message: "too many lists of this team at a time", RetryAfter: time.Second}
	}
	return release, nil
}

// getterByID returns getByID for an id.
func (t *teamClient) getterByID(id string) func(context.Context) (*v1alpha1.Sandbox, error) {
	return func(ctx context.Context) (*v1alpha1.Sandbox, error) { return t.getByID(ctx, id) }
}

// findByID returns a copy of the sandbox of a list that has an id and has not ended, which keeps none of the others in
// memory; nil if there is none.
func findByID(list *v1alpha1.SandboxList, id string, now time.Time) (found *v1alpha1.Sandbox) {
	for i := range list.Items {
		sb := &list.Items[i]
		of, ok := idOf(sb)
		if !ok || of != id || mapping.StateOf(sb, now) == mapping.StateGone {
			continue
		}
		if found == nil || mapping.PrecedenceOf(sb).Over(mapping.PrecedenceOf(found)) {
			one := *sb
			found = &one
		}
	}
	return found
}

// getByID returns the sandbox of an id. It returns the same 404 for a sandbox of another team, one that
// has ended, and one that never existed.
func (t *teamClient) getByID(ctx context.Context, id string) (*v1alpha1.Sandbox, error) {
	missing := &Error{Code: http.StatusNotFound, Message: "there is no sandbox " + quoted(id)}
	namespace, claim, ok := mapping.ParseSandboxID(id)
	if !ok || namespace != t.team {
		return nil, missing
	}
	selector := labels.SelectorFromSet(labels.Set{v1alpha1.LabelClaimName: claim}).String()
	options := metav1.ListOptions{LabelSelector: selector, Limit: smallPage}
	for reads := 1; ; reads++ {
		var list v1alpha1.SandboxList
		var found *v1alpha1.Sandbox
		err := t.list(ctx, "sandboxes", options, &list, func() {
			found = findByID(&list, id, t.now())
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
			release, err := t.takeListSlot()
			if err != nil {
				return nil, err
			}
			defer release()
		}
		options.Continue = list.Continue
	}
}

// getterByUID returns a function that returns the sandbox of a name, a UID and an id, or else a NotFound.
func (t *teamClient) getterByUID(name string, uid types.UID, id string) func(context.Context) (*v1alpha1.Sandbox, error) {
	return func(ctx context.Context) (*v1alpha1.Sandbox, error) {
		sb, err := t.getSandboxByName(ctx, name)
		if err != nil {
			return nil, err
		}
		if of, ok := v1alpha1.IsE2B(sb); !ok || of != id || sb.UID != uid {
			return nil, apierrors.NewNotFound(v1alpha1.Resource("sandboxes"), name)
		}
		return sb, nil
	}
}

// idOf returns the id of a sandbox. ok is false if its claim was not created by this API.
func idOf(sb *v1alpha1.Sandbox) (id string, ok bool) {
	id, ok = v1alpha1.IsE2B(sb)
	return id, ok && mapping.IsClaimName(sb.Labels[v1alpha1.LabelClaimName])
}

// retryOnConflict reads a sandbox and calls do with it. If do returns a conflict, retryOnConflict reads
// the sandbox again and calls do again, at most maxTries times. If there is still one, it returns a 503: SDKs
// take a 409 to mean that the sandbox has the state already.
func retryOnConflict(ctx context.Context, read func(context.Context) (*v1alpha1.Sandbox, error), do func(*v1alpha1.Sandbox) error) error {
	backoff := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: maxTries}
	err := retry.OnError(backoff, func(err error) bool { return apierrors.IsConflict(err) && ctx.Err() == nil }, func() error {
		sb, err := read(ctx)
		if err != nil {
			return err
		}
		return do(sb)
	})
	switch {
	case apierrors.IsNotFound(err):
		return &Error{Code: http.StatusNotFound, Message: "the sandbox has ended"}
	case apierrors.IsConflict(err):
		return &Error{Code: http.StatusServiceUnavailable, Message: "other clients change the sandbox at the same time: try again", RetryAfter: time.Second}
	}
	return err
}

// patchWith reads a sandbox, and writes the change that decide returns for it. It returns the sandbox
// before and after the write.
func (t *teamClient) patchWith(ctx context.Context, read func(context.Context) (*v1alpha1.Sandbox, error),
	decide func(*v1alpha1.Sandbox) (*mapping.Change, error)) (before, after *v1alpha1.Sandbox, _ error) {
	err := retryOnConflict(ctx, read, func(sb *v1alpha1.Sandbox) error {
		before, after = sb, sb
		change, err := decide(sb)
		if err != nil || change.IsEmpty() {
			return err
		}
		patch, err := change.Patch()
		if err != nil {
			return err
		}
		after, err = t.patchSandbox(ctx, sb, patch)
		return err
	})
	return before, after, err
}
