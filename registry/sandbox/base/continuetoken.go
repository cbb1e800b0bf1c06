// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// continueStorage refuses a list that continues from a revision of the future: its continue token is made up,
// or of a time before etcd was restored. The watch cache would wait for the revision, and clients would
// repeat the request.
type continueStorage struct {
	storage.Interface
	// reached is a revision that etcd has reached, so that it is not asked for each page.
	reached atomic.Uint64
}

func checkContinue(s storage.Interface) storage.Interface { return &continueStorage{Interface: s} }

// GetList implements storage.Interface.
func (s *continueStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if err := s.check(ctx, opts.Predicate.Continue); err != nil {
		return err
	}
	err := s.Interface.GetList(ctx, key, opts, list)
	if read, ok := list.(meta.List); err == nil && ok && read.GetContinue() != "" {
		if revision, err := s.Versioner().ParseResourceVersion(read.GetResourceVersion()); err == nil {
			s.reach(revision)
		}
	}
	return err
}

// check returns an error for a continue token of the future. What is no token at all is left to the storage.
func (s *continueStorage) check(ctx context.Context, token string) error {
	if token == "" {
		return nil
	}
	if _, revision, err := storage.DecodeContinue(token, "/"); err == nil && revision > 0 {
		return s.checkRevision(ctx, uint64(revision))
	}
	return nil
}

// checkRevision returns an error for a revision of the future.
func (s *continueStorage) checkRevision(ctx context.Context, revision uint64) error {
	if revision <= s.reached.Load() {
		return nil
	}
	current, err := s.GetCurrentResourceVersion(ctx)
	if err != nil {
		return err
	}
	s.reach(current)
	if revision > current {
		return apierrors.NewResourceExpired("The provided continue parameter is not of this server, or of a time before it was restored. Begin the list anew, without the parameter.")
	}
	return nil
}

func (s *continueStorage) reach(revision uint64) {
	for {
		known := s.reached.Load()
		if revision <= known || s.reached.CompareAndSwap(known, revision) {
			return
		}
	}
}
