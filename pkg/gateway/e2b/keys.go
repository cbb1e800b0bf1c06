// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
)

// team is a namespace in the words of the E2B API.
type team struct {
	TeamID    string `json:"teamID"`
	Name      string `json:"name"`
	IsDefault bool   `json:"isDefault"`
}

// listTeams returns the team of the key, and no other.
func listTeams(c *call) error {
	writeJSON(c.w, http.StatusOK, []team{{TeamID: c.caller.Team, Name: c.caller.Team, IsDefault: true}})
	return nil
}

// mask is what is shown of a key. MaskedValueSuffix stays empty, because the end of a key is secret and
// not stored.
type mask struct {
	Prefix            string `json:"prefix"`
	ValueLength       int    `json:"valueLength"`
	MaskedValuePrefix string `json:"maskedValuePrefix"`
	MaskedValueSuffix string `json:"maskedValueSuffix"`
}

// apiKey is a key in an answer. Key itself is returned once, by the create.
type apiKey struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	Key       string  `json:"key,omitempty"`
	Mask      mask    `json:"mask"`
	CreatedAt string  `json:"createdAt"`
	CreatedBy *string `json:"createdBy"`
	LastUsed  *string `json:"lastUsed"`
}

func toKey(r *apikeys.Record) apiKey {
	k := apiKey{
		ID: r.ID, Name: r.Name, CreatedAt: r.CreatedAt.UTC().Format(time.RFC3339),
		Mask: mask{Prefix: r.Mask.Prefix, ValueLength: r.Mask.ValueLength, MaskedValuePrefix: r.Mask.ValuePrefix},
	}
	if r.CreatedBy != "" {
		k.CreatedBy = &r.CreatedBy
	}
	return k
}

func listKeys(c *call) error {
	release, err := c.cluster.takeListSlot()
	if err != nil {
		return err
	}
	defer release()
	records, err := c.api.options.Keys.List(c.r.Context(), c.caller.Team)
	if err != nil {
		return fromKeyError(err)
	}
	all := []apiKey{}
	for i := range records {
		all = append(all, toKey(&records[i]))
	}
	writeJSON(c.w, http.StatusOK, all)
	return nil
}

// createKey makes another key of the team.
func createKey(c *call) error {
	if !c.api.options.CanCreateKeys {
		return &Error{Code: http.StatusForbidden, Message: "this gateway lets no key make keys; ask its administrators for one"}
	}
	var body struct {
		Name     string `json:"name"`
		TeamName string `json:"teamName"`
	}
	if err := c.decodeBody(&body, (*json.Decoder).DisallowUnknownFields); err != nil {
		return err
	}
	if body.TeamName != "" && body.TeamName != c.caller.Team {
		return &Error{Code: http.StatusForbidden, Message: "a key makes keys of its own team only"}
	}
	record, raw, err := c.api.options.Keys.Issue(c.r.Context(), apikeys.Request{Team: c.caller.Team, Name: body.Name, By: &c.caller})
	if err != nil {
		return fromKeyError(err)
	}
	k := toKey(&record)
	k.Key = raw
	writeJSON(c.w, http.StatusCreated, k)
	return nil
}

func deleteKey(c *call) error {
	if err := c.api.options.Keys.Delete(c.r.Context(), c.caller, c.r.PathValue("id")); err != nil {
		return fromKeyError(err)
	}
	writeEmpty(c.w, http.StatusNoContent)
	return nil
}
