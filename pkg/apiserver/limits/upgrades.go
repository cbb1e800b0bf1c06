// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// WithUpgradeLimits bounds the requests that ask for another protocol, such as WebSockets. For each of them
// kube-apiserver opens a connection of its own, from the one address from which the requests of all its users come. So
// they get half of the connections, and a namespace at most half of these. Only sandboxes are reached like this: other
// requests are refused, before they wait.
func WithUpgradeLimits(handler http.Handler, open int) http.Handler {
	slots := fairness.NewSlots(open/2, open/4)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !httpstream.IsUpgradeRequest(req) && req.Header.Values("Upgrade") == nil {
			handler.ServeHTTP(w, req)
			return
		}
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || info.Subresource != "proxy" {
			http.Error(w, "only requests to sandboxes/proxy may ask for another protocol (Connection: Upgrade)", http.StatusBadRequest)
			return
		}
		release, ok := slots.Take(info.Namespace)
		if !ok {
			refuse(w, req, info, apierrors.NewTooManyRequests("too many connections to sandboxes of this namespace are open", 1))
			return
		}
		defer release()
		handler.ServeHTTP(w, req)
	})
}
