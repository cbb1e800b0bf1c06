// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
)

// TestSimulatedForwardError: a call of envd that nothing answers gets an error in its own protocol, which
// says why. Other ports, and the health of envd, have the error of any sandbox.
func TestSimulatedForwardError(t *testing.T) {
	refused := fmt.Errorf("dialing: %w", syscall.ECONNREFUSED)
	for name, tc := range map[string]struct {
		path, contentType, version string
		port                       int
		err                        error
		code                       int
		wantType                   string
		simulated                  bool
	}{
		"files":        {"/files", "", "", 49983, refused, 501, "application/json", true},
		"a stream":     {"/process.Process/Start", "application/connect+json", "1", 49983, refused, 200, "application/connect+json", true},
		"a call":       {"/filesystem.Filesystem/ListDir", "application/json", "1", 49983, refused, 501, "application/json", true},
		"health":       {"/health", "", "", 49983, refused, 502, "application/json", false},
		"another port": {"/", "", "", 8000, refused, 502, "application/json", false},
		"other errors": {"/files", "", "", 49983, context.DeadlineExceeded, 502, "application/json", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			try := &forwardTry{to: destination{id: "team--box", port: tc.port}}
			r := httptest.NewRequestWithContext(context.WithValue(t.Context(), forwardTryKey, try), http.MethodPost, tc.path, nil)
			r.Header.Set("Content-Type", tc.contentType)
			r.Header.Set("Connect-Protocol-Version", tc.version)
			SimulatedForwardError(w, r, tc.err)
			if w.Code != tc.code || w.Header().Get("Content-Type") != tc.wantType || strings.Contains(w.Body.String(), simulatedMessage) != tc.simulated {
				t.Errorf("%d %s\n%q", w.Code, w.Header().Get("Content-Type"), w.Body.String())
			}
		})
	}
}
