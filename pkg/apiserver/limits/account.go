// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/pkg/apiserver/scheme"
)

// AccountOf returns who the requests of a user count for. The ServiceAccounts of a namespace count
// together: who can make one can make any number of them.
func AccountOf(user string) string {
	if namespace, _, err := serviceaccount.SplitUsername(user); err == nil {
		return serviceaccount.MakeNamespaceGroupName(namespace)
	}
	return user
}

// accountOf returns who a request counts for, see AccountOf.
func accountOf(req *http.Request) string {
	if user, ok := request.UserFrom(req.Context()); ok {
		return AccountOf(user.GetName())
	}
	return ""
}

// refuse answers a request with an error, in the media type and version that its client asks for.
func refuse(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, err error) {
	responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
}
