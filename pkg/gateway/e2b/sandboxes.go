// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"encoding/base64"
	"encoding/json"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

const (
	// nextHeader has the token of the next page of a list.
	nextHeader = "X-Next-Token"
	// maxToken is how long what it says may be.
	maxToken = 4096
	// maxListed is how many sandboxes the list has that has no pages.
	maxListed = 5000
	// chunk is how many sandboxes are read at a time, or fewer if they are large (maxResponse).
	chunk = 100
	// maxPages is how many pages of the cluster's list one request reads, and maxPagesAll how many the
	// list without pages reads.
	maxPages    = 20
	maxPagesAll = 10 * maxListed / chunk
	// maxListBytes is how many bytes the sandboxes of one response have. Beyond it, a page ends, and the
	// list without pages fails.
	maxListBytes = 8 << 20
	// listsAtOnce is how many requests read lists at a time, and listsPerTeam how many of those
	// are of one team: each has a chunk in memory.
	listsAtOnce  = 32
	listsPerTeam = 8
)

// getSandbox returns one sandbox.
func getSandbox(c *call) error {
	sb, err := c.cluster.getByID(c.r.Context(), c.r.PathValue("id"))
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
	return mapping.InfoOf(sb, c.api.options.EnvdVersion, c.api.options.Domain, c.cluster.now())
}

// deleteSandbox deletes a sandbox. The cluster deletes its claim later.
func deleteSandbox(c *call) error {
	err := retryOnConflict(c.r.Context(), c.cluster.getterByID(c.r.PathValue("id")), func(sb *v1alpha1.Sandbox) error {
		// With the version, because a sandbox that was recycled keeps its UID, and may be another claim's.
		options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &sb.UID, ResourceVersion: &sb.ResourceVersion}}
		request := c.cluster.agents.RESTClient().Delete().Namespace(sb.Namespace).Resource("sandboxes").Name(sb.Name).Body(options)
		return c.cluster.retryLost(c.r.Context(), true, func() error { return sendOnly(c.r.Context(), request) })
	})
	if err != nil && (!c.cluster.hasLostWrite || !isNotFound(err)) {
		return err
	}
	c.waitUntilStopped()
	writeEmpty(c.w, http.StatusNoContent)
	return nil
}

// listSandboxes is the list of SDKs before 2.0: all that run, without pages.
func listSandboxes(c *call) error {
	query, err := mapping.ReadQuery(c.r.URL.RawQuery)
	if err != nil {
		return err
	}
	if len(query.States) == 0 {
		query.States = []mapping.E2BState{mapping.StateRunning}
	}
	release, err := c.cluster.takeListSlot()
	if err != nil {
		return err
	}
	defer release()
	var found []json.RawMessage
	size, next := 0, ""
	for reads := 1; ; reads++ {
		part, err := readPart(c, query, chunk, next)
		if err != nil {
			return err
		}
		found, size, next = append(found, part.infos...), size+part.size, part.next
		if size > maxListBytes || next != "" && (len(found) > maxListed || reads == maxPagesAll) {
			return &Error{Code: http.StatusBadRequest, Message: "there are too many sandboxes, or their metadata is too large, for one answer; take GET /v2/sandboxes, which has pages"}
		}
		if next == "" {
			break
		}
	}
	writeList(c.w, found)
	return nil
}

// listSandboxPage returns one page of the sandboxes that a query selects. If the query selects few of
// many sandboxes, the page has fewer than asked for, and there is a next one.
func listSandboxPage(c *call) error {
	query, err := mapping.ReadQuery(c.r.URL.RawQuery)
	if err != nil {
		return err
	}
	next, err := decodeNext(query.Next)
	if err != nil {
		return err
	}
	release, err := c.cluster.takeListSlot()
	if err != nil {
		return err
	}
	defer release()
	var found []json.RawMessage
	size := 0
	read := query.Limit // enough, where the query selects all
	for range maxPages {
		missing := query.Limit - len(found)
		part, err := readPart(c, query, read, next)
		if err != nil {
			return err
		}
		if len(part.infos) > missing {
			// The continue token is that after the last sandbox that was read, so read
			// again, and fewer.
			if read == chunk {
				read = part.read[missing-1]
			} else {
				read = missing
			}
			continue
		}
		found, size, next, read = append(found, part.infos...), size+part.size, part.next, chunk
		if next == "" || len(found) == query.Limit || size > maxListBytes {
			break
		}
	}
	if next != "" {
		c.w.Header().Set(nextHeader, base64.RawURLEncoding.EncodeToString([]byte(next)))
	}
	writeList(c.w, found)
	return nil
}

// part is some of a list.
type part struct {
	// infos are the sandboxes as JSON. Nothing else is kept of them, so size is what they take in memory.
	infos []json.RawMessage
	// size is how many bytes they have.
	size int
	// read is how many sandboxes were read up to each.
	read []int
	// next is the continue token; empty at the end of the list.
	next string
}

// readPart reads some sandboxes of the team, and returns those that a query selects.
func readPart(c *call, query *mapping.Query, limit int, next string) (*part, error) {
	var list v1alpha1.SandboxList
	options := metav1.ListOptions{LabelSelector: v1alpha1.LabelSandboxID, Limit: int64(limit), Continue: next}
	found := &part{}
	err := c.cluster.list(c.r.Context(), "sandboxes", options, &list, func() {
		for i := range list.Items {
			if _, ok := idOf(&list.Items[i]); !ok {
				continue
			}
			if info := c.info(&list.Items[i]); query.Selects(&info) {
				text, _ := json.Marshal(&info) // it has strings and numbers only
				found.size += len(text)
				found.infos, found.read = append(found.infos, text), append(found.read, i+1)
			}
		}
	})
	switch {
	case apierrors.IsResourceExpired(err), next != "" && apierrors.IsBadRequest(err):
		return nil, &Error{Code: http.StatusBadRequest, Message: "nextToken is not one of this server, or is too old; begin the list anew"}
	case err != nil:
		return nil, err
	}
	found.next = list.Continue
	return found, nil
}

func decodeNext(token string) (string, error) {
	if len(token) <= maxToken {
		if next, err := base64.RawURLEncoding.DecodeString(token); err == nil {
			return string(next), nil
		}
	}
	return "", &Error{Code: http.StatusBadRequest, Message: "nextToken is not one of this server"}
}
