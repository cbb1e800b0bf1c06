// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// maxDeletions is how many deletecollections are handled at a time, and maxDeletionsOfUser how many of them are of one
// user. The namespace controller of Kubernetes has ten.
const maxDeletions, maxDeletionsOfUser = 48, 12

// WithDeletionLimits refuses a deletecollection with 429 if its user has too many under way: it may read all objects of a
// namespace although it deletes none, as often as a user likes with a dry run. It answers with the objects themselves: as
// a Table they would be encoded as a whole. AccountOf says who a user counts for. It has to be inside of authentication.
func WithDeletionLimits(handler http.Handler) http.Handler {
	slots := fairness.NewSlots(maxDeletions, maxDeletionsOfUser)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || info.Verb != "deletecollection" {
			handler.ServeHTTP(w, req)
			return
		}
		release, ok := slots.Take(accountOf(req))
		if !ok {
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
