// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keystest tests whether a backend keeps API keys as keys.Backend promises.
package keystest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
)

// Contract makes keys for two teams, uses them and takes them back.
func Contract(t *testing.T, backend apikeys.Backend, team, other string) {
	k := apikeys.New(backend)
	root, rootText := issue(t, k, apikeys.Request{Team: team, Name: "root \u2713"})
	if root.Team != team || root.Name != "root \u2713" || root.CreatedBy != "" || root.CreatedAt.IsZero() || !strings.HasPrefix(rootText, root.Mask.Prefix+root.ID) {
		t.Errorf("issued %+v", root)
	}
	by := authenticate(t, k, rootText)
	if want := (apikeys.Caller{Team: team, KeyID: root.ID}); by != want {
		t.Errorf("authenticated as %+v, want %+v", by, want)
	}
	child, childText := issue(t, k, apikeys.Request{Team: team, Name: "child", By: &by})
	byChild := authenticate(t, k, childText)
	grandchild, grandchildText := issue(t, k, apikeys.Request{Team: team, Name: "grandchild", By: &byChild})
	authenticate(t, k, grandchildText)
	foreign, foreignText := issue(t, k, apikeys.Request{Team: other, Name: "foreign"})
	byForeign := authenticate(t, k, foreignText)
	if child.CreatedBy != root.ID || grandchild.CreatedBy != child.ID {
		t.Errorf("made by %q and %q, want %q and %q", child.CreatedBy, grandchild.CreatedBy, root.ID, child.ID)
	}
	if got, want := listed(t, k, team), idsOf([]apikeys.Record{root, child, grandchild}); !slices.Equal(got, want) {
		t.Errorf("lists %q, want %q", got, want)
	}
	if got, want := listed(t, k, other), []string{foreign.ID}; !slices.Equal(got, want) {
		t.Errorf("lists %q of another team, want %q", got, want)
	}

	// No team reaches into another, and no key takes an administrator's.
	_, _, err := k.Issue(t.Context(), apikeys.Request{Team: other, Name: "x", By: &by})
	fails(t, "a key for another team", err, apikeys.ErrForbidden)
	fails(t, "deleting a foreign key", k.Delete(t.Context(), byForeign, child.ID), apikeys.ErrNotFound)
	fails(t, "deleting an administrator's key", k.Delete(t.Context(), byChild, root.ID), apikeys.ErrForbidden)
	fails(t, "deleting no key", k.Delete(t.Context(), by, "0123456789abcdef"), apikeys.ErrNotFound)
	fails(t, "deleting what is no id", k.Delete(t.Context(), by, "../"+root.ID), apikeys.ErrNotFound)
	_, err = k.Revoke(t.Context(), other, root.ID)
	fails(t, "revoking a key of another team", err, apikeys.ErrNotFound)

	// The keys that were made with a key are deleted with it.
	if err := k.Delete(t.Context(), by, child.ID); err != nil {
		t.Fatal(err)
	}
	refuses(t, k, childText)
	refuses(t, k, grandchildText)
	fails(t, "deleting it again", k.Delete(t.Context(), by, child.ID), apikeys.ErrNotFound)
	_, _, err = k.Issue(t.Context(), apikeys.Request{Team: team, Name: "x", By: &byChild})
	fails(t, "a key by a deleted key", err, apikeys.ErrUnknownKey)
	fails(t, "deleting with a deleted key", k.Delete(t.Context(), byChild, grandchild.ID), apikeys.ErrUnknownKey)
	another, anotherText := issue(t, k, apikeys.Request{Team: team, Name: "another", By: &by})
	gone, err := k.Revoke(t.Context(), team, root.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := idsOf(gone), idsOf([]apikeys.Record{root, another}); !slices.Equal(got, want) {
		t.Errorf("revoked %q, want %q", got, want)
	}
	refuses(t, k, rootText)
	refuses(t, k, anotherText)
	if got := authenticate(t, k, foreignText); got != byForeign {
		t.Errorf("authenticated as %+v, want %+v", got, byForeign)
	}
	_, err = k.Revoke(t.Context(), team, root.ID)
	fails(t, "revoking it again", err, apikeys.ErrNotFound)
}

func issue(t *testing.T, k *apikeys.Keys, request apikeys.Request) (apikeys.Record, string) {
	t.Helper()
	record, text, err := k.Issue(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return record, text
}

func authenticate(t *testing.T, k *apikeys.Keys, text string) apikeys.Caller {
	t.Helper()
	caller, err := k.Authenticate(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	return caller
}

func refuses(t *testing.T, k *apikeys.Keys, text string) {
	t.Helper()
	caller, err := k.Authenticate(t.Context(), text)
	if !errors.Is(err, apikeys.ErrUnknownKey) {
		t.Errorf("a key that has gone is %+v, %v", caller, err)
	}
}

func fails(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error is %v, want %v", what, err, want)
	}
}

func listed(t *testing.T, k *apikeys.Keys, team string) []string {
	t.Helper()
	records, err := k.List(t.Context(), team)
	if err != nil {
		t.Fatal(err)
	}
	return idsOf(records)
}

func idsOf(records []apikeys.Record) []string {
	ids := make([]string, 0, len(records))
	for _, record := range records {
		ids = append(ids, record.ID)
	}
	slices.Sort(ids) // times are whole seconds: it is not known which is the older
	return ids
}
