// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/user"
	testclock "k8s.io/utils/clock/testing"
)

const (
	here  = "10.0.0.1:4000"
	there = "10.0.0.2:4000"
)

// server is handlers and an authenticator as in the API server, with reviews that take
// "good" tokens only.
type server struct {
	http.Handler
	clock   *testclock.FakeClock
	reviews atomic.Int32
	// hold, if there is one, is what reviews wait for, and begun how many wait.
	hold  chan struct{}
	begun chan struct{}
	fails error
}

func newServer() *server {
	s := &server{clock: testclock.NewFakeClock(time.Now()), begun: make(chan struct{}, 2*maxWaitingOfSource)}
	review := authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		s.reviews.Add(1)
		if s.hold != nil {
			s.begun <- struct{}{}
			<-s.hold
		}
		if s.fails != nil {
			return nil, false, s.fails
		}
		if token == "good" {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "ann"}}, true, nil
		}
		return nil, false, errors.New("invalid bearer token")
	})
	guard := NewGuard(time.Minute, s.clock)
	auth := guard.Authenticator(union.New(bearertoken.New(review), websocket.NewProtocolAuthenticator(review)))
	s.Handler = guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, ok, err := auth.AuthenticateRequest(req); err != nil || !ok {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	return s
}

func (s *server) get(t *testing.T, from, token string) int {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis", nil)
	req.RemoteAddr = from
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return s.do(req)
}

func (s *server) do(req *http.Request) int {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, req)
	return w.Code
}

// A source that has presented many bad tokens is refused others, which costs no review,
// until a while later; other sources, known tokens and requests without one are not.
func TestBadTokens(t *testing.T) {
	s := newServer()
	if code := s.get(t, here, "good"); code != http.StatusOK {
		t.Fatal(code)
	}
	s.reviews.Store(0)
	counts := map[int]int{}
	for i := range 1000 {
		counts[s.get(t, here, fmt.Sprint("bad", i))]++
	}
	if counts[http.StatusUnauthorized] != badTokensAtOnce || counts[http.StatusTooManyRequests] != 1000-badTokensAtOnce || s.reviews.Load() != badTokensAtOnce {
		t.Errorf("answered %v after %d reviews", counts, s.reviews.Load())
	}
	for what, tc := range map[string]struct {
		from, token string
		want        int
	}{
		"a known token":  {here, "good", http.StatusOK},
		"no token":       {here, "", http.StatusUnauthorized},
		"from elsewhere": {there, "other", http.StatusUnauthorized},
		"a new one":      {here, "new", http.StatusTooManyRequests},
		"another port":   {"10.0.0.1:9", "newer", http.StatusTooManyRequests},
	} {
		if code := s.get(t, tc.from, tc.token); code != tc.want {
			t.Errorf("%s: %d, want %d", what, code, tc.want)
		}
	}
	s.clock.Step(time.Second)
	passed := 0
	for i := range 20 {
		if s.get(t, here, fmt.Sprint("later", i)) == http.StatusUnauthorized {
			passed++
		}
	}
	if passed != badTokensPerSecond {
		t.Errorf("%d bad tokens passed a second later, want %d", passed, badTokensPerSecond)
	}
}

// TestBadTokensAtOnce: bad tokens whose reviews end at the same time are all counted, also
// those for which a source has no more left.
func TestBadTokensAtOnce(t *testing.T) {
	s := newServer()
	for i := range badTokensAtOnce - 1 {
		s.get(t, here, fmt.Sprint("bad", i))
	}
	s.hold = make(chan struct{})
	const atOnce = 20
	var waiting sync.WaitGroup
	for i := range atOnce {
		waiting.Go(func() { s.get(t, here, fmt.Sprint("late", i)) })
		<-s.begun
	}
	close(s.hold)
	waiting.Wait()
	s.clock.Step((atOnce - 1) * time.Second / badTokensPerSecond)
	s.reviews.Store(0)
	for i := range atOnce {
		s.get(t, here, fmt.Sprint("later", i))
	}
	if n := s.reviews.Load(); n != 0 {
		t.Errorf("%d reviews while the source owes for earlier tokens", n)
	}
	s.clock.Step(time.Second / badTokensPerSecond)
	if code := s.get(t, here, "last"); code != http.StatusUnauthorized {
		t.Errorf("a token after that: %d", code)
	}
}

// TestRequestsThatShareABadToken: requests with the same bad token count once, and reviews that fail
// let a source owe nothing, however many requests wait for them.
func TestRequestsThatShareABadToken(t *testing.T) {
	for name, fails := range map[string]error{"bad": nil, "unanswered": apierrors.NewInternalError(errors.New("the cluster is away"))} {
		s := newServer()
		s.hold, s.fails = make(chan struct{}), fails
		var waiting sync.WaitGroup
		for range maxWaitingOfSource {
			waiting.Go(func() { s.get(t, here, "bad") })
		}
		for range maxWaitingOfSource {
			<-s.begun
		}
		close(s.hold)
		waiting.Wait()
		s.fails = nil
		for i := range badTokensAtOnce - 1 {
			if code := s.get(t, here, fmt.Sprint("later", i)); code != http.StatusUnauthorized {
				t.Fatalf("%s: another token: %d", name, code)
			}
		}
	}
}

// A source has no more than its share of the reviews that are on the way, and is refused more
// at once.
func TestAtOnce(t *testing.T) {
	s := newServer()
	s.hold = make(chan struct{})
	var waiting sync.WaitGroup
	for i := range maxAtOnceOfSource {
		waiting.Go(func() { s.get(t, here, fmt.Sprint("bad", i)) })
		<-s.begun
	}
	if code := s.get(t, here, "one more"); code != http.StatusTooManyRequests {
		t.Errorf("one more from the source: %d", code)
	}
	close(s.hold)
	waiting.Wait()
	s.hold = nil
	if code := s.get(t, here, "good"); code != http.StatusOK {
		t.Errorf("when they are done: %d", code)
	}
}

// TestManySources: many sources that present as many bad tokens as they are let, all at the
// same time or one source after the other, leave places for a source that has none, and never have
// more than there are. So do the networks of one site.
func TestManySources(t *testing.T) {
	const sources = 40
	address := func(i int) string { return fmt.Sprintf("10.1.0.%d:1", i) }
	for name, tc := range map[string]struct {
		from         func(i int) string
		sources      int
		oneByOne     bool
		least, under int
	}{
		"by turns":   {address, sources, false, maxAtOnce / 2, maxAtOnce},
		"one by one": {address, sources, true, maxAtOnce / 2, maxAtOnce},
		"a site":     {func(i int) string { return fmt.Sprintf("[2001:db8:0:%x::1]:1", i) }, 256, true, maxAtOnce / 2, maxAtOnce/2 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			s.hold = make(chan struct{})
			var waiting sync.WaitGroup
			ended := make(chan int, tc.sources*maxAtOnceOfSource+1)
			begun := 0
			for n := range tc.sources * maxAtOnceOfSource {
				from := tc.from(n % tc.sources)
				if tc.oneByOne {
					from = tc.from(n / maxAtOnceOfSource)
				}
				waiting.Go(func() { ended <- s.get(t, from, fmt.Sprint("bad", n)) })
				select {
				case <-s.begun:
					begun++
				case code := <-ended:
					if code != http.StatusTooManyRequests {
						t.Fatalf("a bad token that was not reviewed: %d", code)
					}
				}
			}
			if begun < tc.least || begun >= tc.under {
				t.Errorf("%d reviews at a time, of %d", begun, maxAtOnce)
			}
			waiting.Go(func() { ended <- s.get(t, there, "good") })
			select {
			case <-s.begun:
			case code := <-ended:
				t.Errorf("a good token of another source: %d", code)
			}
			close(s.hold)
			waiting.Wait()
			close(ended)
			passed := 0
			for code := range ended {
				if code == http.StatusOK {
					passed++
				}
			}
			if passed != 1 {
				t.Errorf("%d good tokens passed", passed)
			}
		})
	}
}

// Requests with one token that is not known yet take one place: a client that begins with
// many at once is served. They are bounded all the same.
func TestOneTokenManyRequests(t *testing.T) {
	s := newServer()
	s.hold = make(chan struct{})
	var waiting sync.WaitGroup
	var served atomic.Int32
	for range maxWaitingOfSource {
		waiting.Go(func() {
			if s.get(t, here, "good") == http.StatusOK {
				served.Add(1)
			}
		})
	}
	for range maxWaitingOfSource {
		<-s.begun
	}
	if code := s.get(t, here, "good"); code != http.StatusTooManyRequests {
		t.Errorf("one more: %d", code)
	}
	close(s.hold)
	waiting.Wait()
	if served.Load() != maxWaitingOfSource {
		t.Errorf("%d of %d requests were served", served.Load(), maxWaitingOfSource)
	}

	s = newServer()
	s.hold = make(chan struct{})
	for i := range maxAtOnceOfSource {
		for range 2 {
			waiting.Go(func() { s.get(t, here, fmt.Sprint("bad", i)) })
		}
	}
	for range 2 * maxAtOnceOfSource {
		<-s.begun
	}
	if code := s.get(t, here, "one more"); code != http.StatusTooManyRequests {
		t.Errorf("one more token: %d", code)
	}
	close(s.hold)
	waiting.Wait()
}

// A token that is good takes nothing of what its source may get wrong.
func TestGoodTokensAreNotCounted(t *testing.T) {
	s := newServer()
	for range 2 * badTokensAtOnce {
		s.clock.Step(2 * time.Minute) // it is forgotten
		if code := s.get(t, here, "good"); code != http.StatusOK {
			t.Fatal(code)
		}
	}
}

// A bad token is asked about once in a while. One about which the cluster gave no answer
// is asked about again.
func TestRejectedTokensAreRemembered(t *testing.T) {
	for name, tc := range map[string]struct {
		fails error
		want  int32
	}{
		"rejected":   {nil, 1},
		"no answer":  {utilerrors.NewAggregate([]error{errors.New("other"), apierrors.NewTimeoutError("late", 1)}), 3},
		"in no time": {fmt.Errorf("reviewing: %w", context.DeadlineExceeded), 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			s.fails = tc.fails
			for range 3 {
				if code := s.get(t, here, "bad"); code != http.StatusUnauthorized {
					t.Error(code)
				}
			}
			if got := s.reviews.Load(); got != tc.want {
				t.Errorf("%d reviews, want %d", got, tc.want)
			}
			s.fails = nil
			s.clock.Step(rejectedTTL + time.Second)
			s.get(t, here, "bad")
			if got := s.reviews.Load(); got != tc.want+1 {
				t.Errorf("%d reviews a while later, want %d", got, tc.want+1)
			}
		})
	}
}

// A token that is no longer good is no longer let through.
func TestRevoked(t *testing.T) {
	s := newServer()
	s.get(t, here, "good")
	s.fails = errors.New("revoked")
	if code := s.get(t, here, "good"); code != http.StatusUnauthorized {
		t.Error(code)
	}
	reviews := s.reviews.Load()
	if code := s.get(t, here, "good"); code != http.StatusUnauthorized || s.reviews.Load() != reviews {
		t.Errorf("%d, after %d reviews more", code, s.reviews.Load()-reviews)
	}
}

// Tokens among the protocols of a WebSocket are no way around.
func TestWebSocket(t *testing.T) {
	s := newServer()
	var codes []int
	for i := range badTokensAtOnce + 1 {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis", nil)
		req.RemoteAddr = here
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "websocket")
		req.Header.Set("Sec-WebSocket-Protocol", "v1, base64url.bearer.authorization.k8s.io."+base64.RawURLEncoding.EncodeToString(fmt.Append(nil, "bad", i)))
		codes = append(codes, s.do(req))
	}
	if codes[0] != http.StatusUnauthorized || codes[badTokensAtOnce] != http.StatusTooManyRequests || s.reviews.Load() != badTokensAtOnce {
		t.Errorf("answered %v after %d reviews", codes, s.reviews.Load())
	}
}

// A refusal says when to come again, which clients do by themselves.
func TestRefusal(t *testing.T) {
	s := newServer()
	for i := range badTokensAtOnce {
		s.get(t, here, fmt.Sprint("bad", i))
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis", nil)
	req.RemoteAddr = here
	req.Header.Set("Authorization", "Bearer new")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, req)
	body, _ := io.ReadAll(w.Body)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" || len(body) == 0 {
		t.Errorf("%d %v %s", w.Code, w.Header(), body)
	}
}
