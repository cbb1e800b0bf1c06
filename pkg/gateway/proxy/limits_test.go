// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

// TestLimitsFollowMaxForwarded: a team has at most half of all requests, and a sandbox a fifth,
// of whatever the limit is. Each has at least one. Requests without a token count apart,
// and a team has at most a tenth of these.
func TestLimitsFollowMaxForwarded(t *testing.T) {
	for _, test := range []struct{ total, team, sandbox, untrusted int }{
		{1, 1, 1, 1},
		{4, 2, 1, 1},
		{100, 50, 20, 10},
		{DefaultMaxForwardedRequests, 5000, 2000, 1000},
		{40_000, 20_000, 8000, 4000},
	} {
		t.Run(strconv.Itoa(test.total), func(t *testing.T) {
			taken := func(p *Proxy, isTrusted bool, id func(n int) string) int {
				for n := 0; ; n++ {
					if _, err := p.takeSlots(routes.Route{Namespace: "team", ID: id(n)}, isTrusted); errors.Is(err, errBusy) {
						return n
					}
				}
			}
			one := func(int) string { return "id" }
			if got := taken(New(Options{MaxForwardedRequests: test.total}), true, strconv.Itoa); got != test.team {
				t.Errorf("%d requests to sandboxes of a team, want %d", got, test.team)
			}
			p := New(Options{MaxForwardedRequests: test.total})
			if got := taken(p, false, one); got != test.untrusted {
				t.Errorf("%d requests without a token to a sandbox, want %d", got, test.untrusted)
			}
			if test.total < 10 {
				return // there is none left, or not for both
			}
			if got := taken(p, true, one); got != test.sandbox {
				t.Errorf("%d requests to the sandbox beside these, want %d", got, test.sandbox)
			}
			p = New(Options{MaxForwardedRequests: test.total})
			if got := taken(p, true, strconv.Itoa) + taken(p, false, strconv.Itoa); got != test.team+test.untrusted {
				t.Errorf("%d requests of a team in all, want %d", got, test.team+test.untrusted)
			}
		})
	}
}

// TestProblemOfARuntimeThatIsNotSetUp: clients do not take a sandbox whose agent-runtime is closed for one
// that does not run, but a request may be tried again, unless the setup has failed.
func TestProblemOfARuntimeThatIsNotSetUp(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code int
	}{
		{fmt.Errorf("%w: it answers 200 to a request without a token", sandboxproxy.ErrRuntimeNotSetUp), http.StatusServiceUnavailable},
		{routes.ErrSetupFailed, http.StatusBadGateway},
	} {
		got := problemOf(tc.err, destination{})
		if got.Code != tc.code || (got.retryAfter > 0) != (tc.code == http.StatusServiceUnavailable) || !strings.HasPrefix(got.Message, "The sandbox is running, but its agent-runtime") {
			t.Errorf("%v: got %+v", tc.err, got)
		}
		if !errors.Is(tc.err, sandboxproxy.ErrNotRunning) {
			t.Errorf("%v: it is not tried again", tc.err)
		}
	}
}
