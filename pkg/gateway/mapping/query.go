// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Sizes of lists.
const (
	// DefaultLimit and MaxLimit are how many sandboxes a page of a list has.
	DefaultLimit = 100
	MaxLimit     = 100
	// maxFilters is how many keys of metadata a list may select by.
	maxFilters = 64
)

// Query is what a list asks for.
type Query struct {
	// Metadata that a sandbox must have.
	Metadata map[string]string
	// States of which it must have one; none is all.
	States []E2BState
	// TemplateID that it must have been asked for by, if not empty.
	TemplateID string
	// Limit is how many at most.
	Limit int
	// Next is the token of the next page, as the server returned it.
	Next string
}

// ReadQuery reads the query of GET /v2/sandboxes. Keys that it does not know are metadata,
// as in OpenKruise Agents.
func ReadQuery(raw string) (*Query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalid("query: %v", err)
	}
	q := &Query{Metadata: map[string]string{}, Limit: DefaultLimit}
	for key, all := range values {
		if len(all) != 1 && key != "state" && key != "metadata" {
			return nil, invalid("query: %s is there %d times", key, len(all))
		}
		for _, value := range all {
			if err := q.read(key, value); err != nil {
				return nil, err
			}
		}
	}
	if len(q.Metadata) > maxFilters {
		return nil, invalid("query: metadata of more than %d keys", maxFilters)
	}
	q.States = sortedStates(q.States)
	return q, nil
}

func (q *Query) read(key, value string) error {
	switch key {
	case "metadata":
		return q.readMetadata(value)
	case "state":
		for state := range strings.SplitSeq(value, ",") {
			switch s := E2BState(state); s {
			case StateRunning, StatePaused:
				q.States = append(q.States, s)
			default:
				return invalid("query: state %q is neither running nor paused", state)
			}
		}
	case "limit":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > MaxLimit {
			return invalid("query: limit must be from 1 to %d, not %q", MaxLimit, value)
		}
		q.Limit = n
	case "nextToken":
		q.Next = value
	case "template", "templateID":
		q.TemplateID = value
	case "order", "startedAfter", "teamID":
		if value != "" && (key != "order" || value != "asc") {
			return &UnservedError{What: "the query " + key}
		}
	default:
		q.Metadata[key] = value
	}
	return nil
}

// readMetadata decodes what SDKs encode twice more: each key and each value, and the whole.
func (q *Query) readMetadata(value string) error {
	if value == "" {
		return nil
	}
	whole, err := url.QueryUnescape(value)
	if err != nil {
		return invalid("query: metadata: %v", err)
	}
	for pair := range strings.SplitSeq(whole, "&") {
		key, val, _ := strings.Cut(pair, "=")
		if key, err = url.QueryUnescape(key); err == nil {
			val, err = url.QueryUnescape(val)
		}
		if err != nil {
			return invalid("query: metadata: %v", err)
		}
		if key != "" {
			q.Metadata[key] = val
		}
	}
	return nil
}

// Selects reports whether a list has a sandbox.
func (q *Query) Selects(info *Info) bool {
	if info.State == StateGone || len(q.States) > 0 && !slices.Contains(q.States, info.State) {
		return false
	}
	if q.TemplateID != "" && q.TemplateID != info.TemplateID {
		return false
	}
	for key, value := range q.Metadata {
		if has, ok := info.Metadata[key]; !ok || has != value {
			return false
		}
	}
	return true
}
