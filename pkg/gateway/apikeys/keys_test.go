// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

func TestIssueRefuses(t *testing.T) {
	k := New(open(t, t.TempDir()))
	root, text, err := k.Issue(t.Context(), Request{Team: strings.Repeat("t", 40), Name: strings.Repeat("n", MaxName)})
	if err != nil || !strings.HasPrefix(text, prefix+root.ID) {
		t.Fatalf("issued %+v, %v", root, err)
	}
	for name, request := range map[string]Request{
		"no name":       {Team: "team"},
		"a long name":   {Team: "team", Name: strings.Repeat("n", MaxName+1)},
		"not UTF-8":     {Team: "team", Name: "\xff"},
		"no team":       {Name: "n"},
		"a long team":   {Team: strings.Repeat("t", 41), Name: "n"},
		"upper case":    {Team: "Team", Name: "n"},
		"a subdomain":   {Team: "te.am", Name: "n"},
		"a path":        {Team: "../kube-system", Name: "n"},
		"two selectors": {Team: "a,b", Name: "n"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := k.Issue(t.Context(), request); !errors.Is(err, ErrInvalid) {
				t.Errorf("error is %v", err)
			}
			if _, err := k.List(t.Context(), request.Team); request.Name == "n" && !errors.Is(err, ErrInvalid) {
				t.Errorf("error of the list is %v", err)
			}
		})
	}
}

// Only what keys make is limited; administrators are not.
func TestLimits(t *testing.T) {
	k := New(open(t, t.TempDir()))
	root, _, err := k.Issue(t.Context(), Request{Team: "team", Name: "root"})
	if err != nil {
		t.Fatal(err)
	}
	by := &Caller{Team: "team", KeyID: root.ID}
	for range maxAncestors {
		made, _, err := k.Issue(t.Context(), Request{Team: "team", Name: "chain", By: by})
		if err != nil {
			t.Fatal(err)
		}
		by = &Caller{Team: "team", KeyID: made.ID}
	}
	if _, _, err := k.Issue(t.Context(), Request{Team: "team", Name: "chain", By: by}); !errors.Is(err, ErrLimit) {
		t.Errorf("the end of a chain makes another: %v", err)
	}
	by = &Caller{Team: "team", KeyID: root.ID}
	for range MaxPerTeam - maxAncestors {
		if _, _, err := k.Issue(t.Context(), Request{Team: "team", Name: "made", By: by}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := k.Issue(t.Context(), Request{Team: "team", Name: "made", By: by}); !errors.Is(err, ErrLimit) {
		t.Errorf("one too many: %v", err)
	}
	if _, _, err := k.Issue(t.Context(), Request{Team: "team", Name: "admin"}); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	gone, err := k.Revoke(t.Context(), "team", root.ID)
	if err != nil || len(gone) != MaxPerTeam+1 {
		t.Errorf("revoked %d, %v", len(gone), err)
	}
}

// TestDelete checks that a key can delete its descendants, with the descendants of these, and no
// other keys.
func TestDelete(t *testing.T) {
	backend := open(t, t.TempDir())
	k := New(backend)
	issue := func(team, name string, by *Record) *Record {
		t.Helper()
		request := Request{Team: team, Name: name}
		if by != nil {
			request.By = &Caller{Team: by.Team, KeyID: by.ID}
		}
		record, _, err := k.Issue(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return &record
	}
	remove := func(by, key *Record) error {
		return k.Delete(t.Context(), Caller{Team: by.Team, KeyID: by.ID}, key.ID)
	}
	root, second, other := issue("team", "root", nil), issue("team", "second", nil), issue("other", "other", nil)
	ci := issue("team", "ci", root)
	stolen := issue("team", "stolen", root)
	hidden := issue("team", "hidden", stolen)
	deeper := issue("team", "deeper", hidden)
	for name, tc := range map[string]struct {
		by, key *Record
		want    error
	}{
		"a sibling":           {stolen, ci, ErrForbidden},
		"its maker":           {stolen, root, ErrForbidden},
		"the key itself":      {stolen, stolen, ErrForbidden},
		"of an administrator": {root, second, ErrForbidden},
		"of another line":     {second, ci, ErrForbidden},
		"of another team":     {other, ci, ErrNotFound},
		"one that is not":     {root, &Record{ID: "0123456789abcdef"}, ErrNotFound},
		"no id":               {root, &Record{ID: "x"}, ErrNotFound},
		"with an unknown key": {&Record{ID: "0123456789abcdef", Team: "team"}, ci, ErrUnknownKey},
	} {
		if err := remove(tc.by, tc.key); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	if kept, err := k.List(t.Context(), "team"); err != nil || len(kept) != 6 {
		t.Fatalf("there are %d keys, %v", len(kept), err)
	}
	// A call that ended half way has deleted the key, and has left what came from it.
	if err := backend.Delete(t.Context(), stolen.ID); err != nil {
		t.Fatal(err)
	}
	if err := remove(ci, stolen); !errors.Is(err, ErrForbidden) {
		t.Errorf("what a sibling has left: %v", err)
	}
	if err := remove(root, stolen); err != nil {
		t.Errorf("again: %v", err)
	}
	for _, key := range []*Record{hidden, deeper} {
		if _, err := backend.Read(t.Context(), key.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("key %s is left: %v", key.Name, err)
		}
	}
	if err := remove(root, stolen); !errors.Is(err, ErrNotFound) {
		t.Errorf("with nothing left: %v", err)
	}
	for _, key := range []*Record{root, second, ci} {
		if _, err := backend.Read(t.Context(), key.ID); err != nil {
			t.Errorf("key %s: %v", key.Name, err)
		}
	}
}

// A key that is revoked while it makes another one leaves none behind.
func TestIssueOfRevoked(t *testing.T) {
	backend := &meddling{File: open(t, t.TempDir())}
	k := New(backend)
	root, _, err := k.Issue(t.Context(), Request{Team: "team", Name: "root"})
	if err != nil {
		t.Fatal(err)
	}
	backend.created = func() {
		if _, err := New(backend.File).Revoke(t.Context(), "team", root.ID); err != nil {
			t.Error(err)
		}
	}
	// The Revoke takes the new key too, or Issue does: either way no client has it.
	if _, text, err := k.Issue(t.Context(), Request{Team: "team", Name: "late", By: &Caller{Team: "team", KeyID: root.ID}}); !errors.Is(err, ErrUnknownKey) || text != "" {
		t.Errorf("error is %v", err)
	}
	if left, err := k.List(t.Context(), "team"); err != nil || len(left) > 0 {
		t.Errorf("left are %+v, %v", left, err)
	}
}

// A key of which it is unknown whether it is kept is taken back.
func TestIssueWithoutAnAnswer(t *testing.T) {
	backend := &meddling{File: open(t, t.TempDir())}
	k := New(backend)
	backend.lost = errors.New("no answer")
	if _, _, err := k.Issue(t.Context(), Request{Team: "team", Name: "lost"}); !errors.Is(err, backend.lost) {
		t.Errorf("error is %v", err)
	}
	if left, err := k.List(t.Context(), "team"); err != nil || len(left) > 0 {
		t.Errorf("left are %+v, %v", left, err)
	}
}

// Keys that are made for one team do not hold up any other, and who has left waits no more.
func TestIssueWaits(t *testing.T) {
	backend := &meddling{File: open(t, t.TempDir())}
	k := New(backend)
	var all []*Caller
	for i := range 100 { // more than any table of locks has room for
		team := fmt.Sprint("team-", i)
		root, _, err := k.Issue(t.Context(), Request{Team: team, Name: "root"})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &Caller{Team: team, KeyID: root.ID})
	}
	ask := func(ctx context.Context, by *Caller) error {
		_, _, err := k.Issue(ctx, Request{Team: by.Team, Name: "more", By: by})
		return err
	}
	backend.created = func() {
		backend.created = nil
		within, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		for _, by := range all[1:] {
			if err := ask(within, by); err != nil {
				t.Fatalf("%s waited for %s: %v", by.Team, all[0].Team, err)
			}
		}
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if err := ask(ctx, all[0]); !errors.Is(err, context.Canceled) {
			t.Errorf("the same team: %v", err)
		}
	}
	if err := ask(t.Context(), all[0]); err != nil {
		t.Error(err)
	}
	if len(k.issuing.teams) != 0 {
		t.Errorf("%d turns are kept", len(k.issuing.teams))
	}
}

// A backend that fails says neither yes nor no, and names no key.
func TestBackendFails(t *testing.T) {
	backend := &meddling{File: open(t, t.TempDir())}
	k := New(backend)
	_, text, err := k.Issue(t.Context(), Request{Team: "team", Name: "root"})
	if err != nil {
		t.Fatal(err)
	}
	backend.err = errors.New("away")
	if caller, err := k.Authenticate(t.Context(), text); !errors.Is(err, backend.err) || errors.Is(err, ErrUnknownKey) || caller != (Caller{}) || strings.Contains(err.Error(), text[20:]) {
		t.Errorf("authenticated as %+v: %v", caller, err)
	}
	backend.err = fmt.Errorf("secret x %w", errDamaged)
	if _, err := k.Authenticate(t.Context(), text); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("what is kept is no key: %v", err)
	}
	if _, err := k.Authenticate(t.Context(), text+"0"); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("the backend was asked for what is no key: %v", err)
	}
}

// No secret is printed with what a program may log.
func TestNoSecretInWords(t *testing.T) {
	k := New(open(t, t.TempDir()))
	record, text, err := k.Issue(t.Context(), Request{Team: "team", Name: "root"})
	if err != nil {
		t.Fatal(err)
	}
	caller, err := k.Authenticate(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	_, wrong := k.Authenticate(t.Context(), text[:len(text)-1]+string("10"[text[len(text)-1]&1]))
	if !errors.Is(wrong, ErrUnknownKey) {
		t.Errorf("a key with another last digit: %v", wrong)
	}
	if words := fmt.Sprintf("%+v %+v %v", record, caller, wrong); strings.Contains(words, text[len(prefix)+idDigits:len(prefix)+idDigits+12]) {
		t.Errorf("the secret is in %s", words)
	}
}

func open(t *testing.T, folder string) *File {
	t.Helper()
	f, err := OpenFile(folder, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// meddling is a backend to which something happens.
type meddling struct {
	*File
	created func()
	err     error
	// lost is what a create says that was carried out.
	lost error
}

func (m *meddling) Create(ctx context.Context, key Key) (Key, error) {
	kept, err := m.File.Create(ctx, key)
	if m.created != nil {
		m.created()
	}
	if m.lost != nil {
		return Key{}, m.lost
	}
	return kept, err
}

func (m *meddling) Lookup(ctx context.Context, id string) (Key, error) {
	if m.err != nil {
		return Key{}, m.err
	}
	return m.File.Lookup(ctx, id)
}
