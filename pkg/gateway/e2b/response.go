// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// writeTimeout is how long a client may take to receive a response.
const writeTimeout = 30 * time.Second

// setDeadlines limits how long the response may take, and the rest of the request.
func setDeadlines(w http.ResponseWriter) {
	now := clock.RealClock{}.Now()
	setReadDeadline(w, now.Add(readTimeout))
	_ = http.NewResponseController(w).SetWriteDeadline(now.Add(writeTimeout)) // ignored as in setReadDeadline
}

// writeEmpty responds without a body.
func writeEmpty(w http.ResponseWriter, code int) {
	setDeadlines(w)
	w.WriteHeader(code)
}

func writeError(w http.ResponseWriter, err error) {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: http.StatusInternalServerError, Message: "internal error"}
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64(math.Ceil(e.RetryAfter.Seconds())), 10))
	}
	if e.Code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `ApiKey header="X-API-Key"`)
	}
	writeJSON(w, e.Code, e)
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		code, text = http.StatusInternalServerError, []byte(`{"code":500,"message":"internal error"}`)
	}
	writeTexts(w, code, text)
}

// writeList responds with a list of what is encoded already.
func writeList(w http.ResponseWriter, items []json.RawMessage) {
	texts := [][]byte{[]byte("[")}
	for i, item := range items {
		if i > 0 {
			texts = append(texts, []byte(","))
		}
		texts = append(texts, item)
	}
	writeTexts(w, http.StatusOK, append(texts, []byte("]"))...)
}

// writeTexts responds with JSON, in parts.
func writeTexts(w http.ResponseWriter, code int, texts ...[]byte) {
	setDeadlines(w)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	for _, text := range texts {
		_, _ = w.Write(text) // fails if the client is gone
	}
	_, _ = w.Write([]byte{'\n'})
}

// sandboxResponse returns the response to create, connect and resume.
func (c *call) sandboxResponse(sb *v1alpha1.Sandbox, id, templateID, token string) *mapping.SandboxResponse {
	response := &mapping.SandboxResponse{
		TemplateID: templateID, SandboxID: id, EnvdVersion: c.api.options.EnvdVersion, EnvdAccessToken: token, Domain: c.api.options.Domain,
	}
	if v1alpha1.IsE2BPrivate(sb) {
		traffic := mapping.TrafficToken(token)
		response.TrafficAccessToken = &traffic
	}
	return response
}
