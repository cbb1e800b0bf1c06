// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"net/http"

	"k8s.io/client-go/rest"
)

// finishing returns a configuration whose requests, once sent, are finished even
// if their context is cancelled meanwhile; watches are not. When the controllers
// are asked to stop, what they have begun ends well on both sides, instead of
// being torn down with complaints from the server and from etcd's client. The
// server sets each request a limit, and outlives the controllers.
func finishing(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Context().Err() == nil && !req.URL.Query().Has("watch") {
				req = req.WithContext(context.WithoutCancel(req.Context()))
			}
			return next.RoundTrip(req)
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
