// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	// MaxPerTeam is how many keys of a team may have been made by keys. Two replicas that
	// make keys at the same moment may pass it by one.
	MaxPerTeam = 100
	// MaxName is how many bytes the name of a key may have.
	MaxName = 512
	// maxAncestors is how many keys, each made by the one before it, a key may come from.
	maxAncestors = 8
	// issuePatience is how long it may take until a key has made another one.
	issuePatience = 30 * time.Second
	// undoPatience is how long it may take to delete a key that no client gets.
	undoPatience = 10 * time.Second
)

// Request asks for a key.
type Request struct {
	// Team is the namespace to which the key is to belong: a DNS label of at most
	// v1alpha1.MaxE2BNamespace characters.
	Team string
	// Name is what the key is called.
	Name string
	// By is who asks, nil for an administrator.
	By *Caller
}

// Issue makes a key, and returns its text, which is kept nowhere. It fails with
// ErrUnknownKey if the key of who asks is valid no more, and with ErrForbidden, ErrInvalid
// and ErrLimit.
func (k *Keys) Issue(ctx context.Context, request Request) (Record, string, error) {
	if err := request.check(); err != nil {
		return Record{}, "", err
	}
	if request.By == nil {
		return k.create(ctx, request, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, issuePatience)
	defer cancel()
	unlock, err := k.issuing.lock(ctx, request.Team)
	if err != nil {
		return Record{}, "", fmt.Errorf("waiting for other keys that are made: %w", err)
	}
	defer unlock()
	ancestors, err := k.ancestorsOf(ctx, request)
	if err != nil {
		return Record{}, "", err
	}
	record, text, err := k.create(ctx, request, ancestors)
	if err != nil {
		return Record{}, "", err
	}
	// Revoke deletes a key first, and lists its descendants after that. So a descendant that is created
	// after the list finds its ancestor deleted here, and none is left.
	if _, err := k.readCaller(ctx, *request.By); err != nil {
		return Record{}, "", k.undo(ctx, record.ID, err)
	}
	return record, text, nil
}

// undo deletes a key that no client gets because of an error, and returns the error. It does so even if the
// context of the caller is done.
func (k *Keys) undo(ctx context.Context, id string, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoPatience)
	defer cancel()
	if undo := k.backend.Delete(ctx, id); undo != nil && !errors.Is(undo, ErrNotFound) {
		return fmt.Errorf("%w; API key %s, which no client knows, is left: %w", err, id, undo)
	}
	return err
}

// ancestorsOf returns the ancestors of a new key, or an error if it may not be created.
func (k *Keys) ancestorsOf(ctx context.Context, request Request) ([]string, error) {
	creator, err := k.readCaller(ctx, *request.By)
	if err != nil {
		return nil, err
	}
	if creator.Team != request.Team {
		return nil, fmt.Errorf("%w: make keys for another team", ErrForbidden)
	}
	if len(creator.Ancestors) >= maxAncestors {
		return nil, fmt.Errorf("%w: this one comes from %d others, one made by the other: make it with one of those", ErrLimit, maxAncestors)
	}
	kept, err := k.backend.List(ctx, request.Team)
	if err != nil {
		return nil, err
	}
	made := 0
	for _, key := range kept {
		if key.CreatedBy != "" {
			made++
		}
	}
	if made >= MaxPerTeam {
		return nil, fmt.Errorf("%w: keys have made %d for the team: delete some", ErrLimit, made)
	}
	return append(slices.Clone(creator.Ancestors), creator.ID), nil
}

func (k *Keys) create(ctx context.Context, request Request, ancestors []string) (Record, string, error) {
	id, text := newText()
	key := Key{Record: Record{ID: id, Team: request.Team, Name: request.Name, Mask: maskOf(id)}, Ancestors: ancestors, Salt: newSalt()}
	key.Hash = hash(key.Salt, text)
	if len(ancestors) > 0 {
		key.CreatedBy = ancestors[len(ancestors)-1]
	}
	kept, err := k.backend.Create(ctx, key)
	if err != nil {
		err = fmt.Errorf("making an API key for team %s: %w", request.Team, err)
		if !isRefusal(err) {
			err = k.undo(ctx, id, err) // it may have been made all the same
		}
		return Record{}, "", err
	}
	return kept.Record, text, nil
}

func (r *Request) check() error {
	if len(r.Name) == 0 || len(r.Name) > MaxName || !utf8.ValidString(r.Name) {
		return fmt.Errorf("%w: its name has to be UTF-8 of 1 to %d bytes", ErrInvalid, MaxName)
	}
	return checkTeam(r.Team)
}

// checkTeam refuses what cannot be the namespace of a team.
func checkTeam(team string) error {
	if len(team) > v1alpha1.MaxE2BNamespace || len(validation.IsDNS1123Label(team)) > 0 {
		return fmt.Errorf("%w: its team has to be a namespace of at most %d characters", ErrInvalid, v1alpha1.MaxE2BNamespace)
	}
	return nil
}

// isRefusal reports whether an error says that nothing was written.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusBadRequest && status.Status().Code < http.StatusInternalServerError
}
