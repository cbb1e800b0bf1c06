// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"net/http"

	"k8s.io/apimachinery/pkg/util/net"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// answeredKey is the key of a *map[string]string in the context of a request, which receives the
// access tokens of the response.
type answeredKey struct{}

// ReadAccessTokens wraps the transport of a client so that Options.AccessTokens works with it:
// config.Wrap(client.ReadAccessTokens). It removes the tokens from the header of responses, so
// that outer RoundTrippers cannot log them.
func ReadAccessTokens(next http.RoundTripper) http.RoundTripper { return &tokenReader{next} }

type tokenReader struct{ next http.RoundTripper }

var _ net.RoundTripperWrapper = &tokenReader{}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (r *tokenReader) WrappedRoundTripper() http.RoundTripper { return r.next }

// RoundTrip implements http.RoundTripper.
func (r *tokenReader) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	if into, asked := request.Context().Value(answeredKey{}).(*map[string]string); asked {
		var tokens map[string]string
		// What cannot be read counts as not answered: the tokens are asked for then.
		if json.Unmarshal([]byte(response.Header.Get(v1alpha1.RuntimeAccessHeader)), &tokens) == nil {
			*into = tokens
		}
		response.Header.Del(v1alpha1.RuntimeAccessHeader)
	}
	return response, nil
}
