// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/utils/clock"
)

// responseGrace is how long the response of a request may take beyond the time limit of the request.
const responseGrace = 10 * time.Second

// withResponseDeadline ends responses whose clients do not read, when the time limit of their requests is over by
// responseGrace. The generic timeout does not: it waits for the write that stands. Long-running requests have no
// deadline here; watches have their own, for each write.
func withResponseDeadline(handler http.Handler, config *genericapiserver.Config, clock clock.PassiveClock) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var deadline time.Time // of HTTP/1, the connection may have that of an earlier request
		if info, ok := request.RequestInfoFrom(req.Context()); ok && !config.LongRunningFunc(req, info) {
			deadline = clock.Now().Add(config.RequestTimeout + responseGrace)
		}
		_ = http.NewResponseController(w).SetWriteDeadline(deadline) // writers of tests have none
		handler.ServeHTTP(w, req)
	})
}
