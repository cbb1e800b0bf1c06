// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

const (
	// maxDeletions is how many deletecollections of users are handled at a time, and maxDeletionsOfUser how many of them
	// are of one user.
	maxDeletions, maxDeletionsOfUser = 16, 2
	// maxSystemDeletions and maxSystemDeletionsOfUser are the same for parts of Kubernetes. The namespace controller has
	// ten.
	maxSystemDeletions, maxSystemDeletionsOfUser = 48, 12
)

// WithDeletionLimits lets a deletecollection wait if its user has too many under way, and refuses it with 429 after
// slotWait: it may read all objects of a namespace although it deletes none, as often as a user likes with a dry run. It
// answers with the objects themselves: as a Table they would be encoded as a whole. AccountOf says who a user counts for.
// It has to be inside of authentication.
func WithDeletionLimits(handler http.Handler) http.Handler {
	ofUsers, ofSystem := fairness.NewSlots(maxDeletions, maxDeletionsOfUser), fairness.NewSlots(maxSystemDeletions, maxSystemDeletionsOfUser)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || info.Verb != "deletecollection" {
			handler.ServeHTTP(w, req)
			return
		}
		slots := ofUsers
		if deleter, ok := request.UserFrom(req.Context()); ok && isSystem(deleter) {
			slots = ofSystem
		}
		ctx, cancel := context.WithTimeout(req.Context(), slotWait)
		release, err := slots.Wait(ctx, accountOf(req))
		cancel()
		if err != nil {
			refuse(w, req, info, apierrors.NewTooManyRequests("too many deletions of collections of this user are under way, please try again later", 1))
			return
		}
		defer release()
		if mayBeConverted(req) {
			req.Header.Set("Accept", runtime.ContentTypeJSON)
		}
		handler.ServeHTTP(w, req)
	})
}
