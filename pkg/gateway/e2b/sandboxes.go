// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"encoding/base64"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

const (
	// nextHeader says where a list goes on.
	nextHeader = "X-Next-Token"
	// maxToken is how long what it says may be.
	maxToken = 4096
	// maxListed is how many sandboxes the list has that has no pages.
	maxListed = 5000
	// chunk is how many sandboxes are read at a time.
	chunk = 500
)

// get tells of one sandbox.
func (c *call) get() error {
	sb, err := c.sandbox()
	if err != nil {
		return err
	}
	info := c.info(sb)
	if info.EnvdAccessToken, err = c.token(c.r.Context(), sb); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		return err
	}
	writeJSON(c.w, http.StatusOK, &info)
	return nil
}

func (c *call) info(sb *v1alpha1.Sandbox) mapping.Info {
	return mapping.InfoOf(sb, c.api.EnvdVersion, c.api.Domain, c.now())
}

// kill deletes a sandbox. Its claim follows by itself.
func (c *call) kill() error {
	sb, err := c.sandbox()
	if err != nil {
		return err
	}
	err = c.agents.Sandboxes(sb.Namespace).Delete(c.r.Context(), sb.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(sb.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return &Error{Code: http.StatusNotFound, Message: "the sandbox has ended"}
	}
	if err != nil {
		return err
	}
	c.stopped()
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// listAll is the list of SDKs before 2.0: all that run, without pages.
func (c *call) listAll() error {
	query, err := mapping.ReadQuery(c.r.URL.RawQuery)
	if err != nil {
		return err
	}
	if len(query.States) == 0 {
		query.States = []mapping.State{mapping.StateRunning}
	}
	found := []mapping.Info{}
	next := ""
	for {
		var infos []mapping.Info
		if infos, next, err = c.page(c.r.Context(), query, chunk, next); err != nil {
			return err
		}
		found = append(found, infos...)
		if next == "" {
			break
		}
		if len(found) > maxListed {
			return &Error{Code: http.StatusBadRequest, Message: "there are too many sandboxes for one answer; take GET /v2/sandboxes, which has pages"}
		}
	}
	writeJSON(c.w, http.StatusOK, found)
	return nil
}

// listPage is one page of the sandboxes that a query selects.
func (c *call) listPage() error {
	query, err := mapping.ReadQuery(c.r.URL.RawQuery)
	if err != nil {
		return err
	}
	next, err := decodeNext(query.Next)
	if err != nil {
		return err
	}
	found := []mapping.Info{}
	for {
		var infos []mapping.Info
		// As many are read as are missing, so none is read that the page has no room for.
		if infos, next, err = c.page(c.r.Context(), query, query.Limit-len(found), next); err != nil {
			return err
		}
		found = append(found, infos...)
		if next == "" || len(found) >= query.Limit {
			break
		}
	}
	if next != "" {
		c.w.Header().Set(nextHeader, base64.RawURLEncoding.EncodeToString([]byte(next)))
	}
	writeJSON(c.w, http.StatusOK, found)
	return nil
}

// page reads some sandboxes of the team, and returns those that a query selects.
func (c *call) page(ctx context.Context, query *mapping.Query, limit int, next string) ([]mapping.Info, string, error) {
	list, err := c.agents.Sandboxes(c.caller.Team).List(ctx, metav1.ListOptions{
		LabelSelector: v1alpha1.LabelSandboxID, Limit: int64(limit), Continue: next,
	})
	switch {
	case apierrors.IsResourceExpired(err), next != "" && apierrors.IsBadRequest(err):
		return nil, "", &Error{Code: http.StatusBadRequest, Message: "nextToken is not one of this server, or is too old; begin the list anew"}
	case err != nil:
		return nil, "", err
	}
	var infos []mapping.Info
	for i := range list.Items {
		if _, ok := v1alpha1.IsE2B(&list.Items[i]); !ok {
			continue
		}
		if info := c.info(&list.Items[i]); query.Selects(&info) {
			infos = append(infos, info)
		}
	}
	return infos, list.Continue, nil
}

func decodeNext(token string) (string, error) {
	if len(token) <= maxToken {
		if next, err := base64.RawURLEncoding.DecodeString(token); err == nil {
			return string(next), nil
		}
	}
	return "", &Error{Code: http.StatusBadRequest, Message: "nextToken is not one of this server"}
}
