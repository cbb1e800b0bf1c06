// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
)

// strictHeader lets one request ask for the answer that --strict-agent-sandbox-claims gives
// to all.
const strictHeader = "Sandlot-Strict"

// withClaimOptions reads what the create of a claim asks for beside the claim. Its header may ask
// for an error at once if something is wrong with a claim of agent-sandbox. Its parameters may ask
// for access tokens, which come in a header: audit logs may have bodies of responses, but no
// headers.
func withClaimOptions(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get(strictHeader) == "true" {
			req = req.WithContext(sandboxclaim.WithStrict(req.Context()))
		}
		// It costs other requests no allocation.
		if strings.Contains(req.URL.RawQuery, v1alpha1.RuntimeAccessParameter) && asksForTokens(req) {
			tokens := &sandboxclaim.ResponseTokens{}
			req = req.WithContext(sandboxclaim.WithResponseTokens(req.Context(), tokens))
			w = responsewriter.WrapForHTTP1Or2(&tokenWriter{ResponseWriter: w, tokens: tokens})
		}
		handler.ServeHTTP(w, req)
	})
}

// asksForTokens reports whether a request creates a claim in our group, whose claims have the
// subresource, and has the parameter.
func asksForTokens(req *http.Request) bool {
	info, ok := request.RequestInfoFrom(req.Context())
	return ok && req.Method == http.MethodPost && info.APIGroup == v1alpha1.GroupName && info.Resource == "sandboxclaims" && info.Subresource == "" &&
		req.URL.Query().Get(v1alpha1.RuntimeAccessParameter) == "true"
}

// tokenWriter puts tokens into the header of an answer that says that a claim was created. An
// answer with another code, such as one to a request that took too long, has none: the create
// may still be at work.
type tokenWriter struct {
	http.ResponseWriter
	tokens *sandboxclaim.ResponseTokens
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *tokenWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *tokenWriter) WriteHeader(code int) {
	if code == http.StatusCreated {
		if tokens := w.tokens.BySandbox(); len(tokens) > 0 {
			text, _ := json.Marshal(tokens) // never fails
			w.Header().Set(v1alpha1.RuntimeAccessHeader, string(text))
		}
	}
	w.ResponseWriter.WriteHeader(code)
}
