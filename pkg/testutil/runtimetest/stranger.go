// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimetest

import (
	"net/http"
	"strings"
	"testing"
)

// InitAsStranger calls /init of a runtime with a token of its own, and returns the status code of
// the answer.
func InitAsStranger(t *testing.T, r *Runtime) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.URL()+"/init", strings.NewReader(`{"accessToken":"mine"}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}
