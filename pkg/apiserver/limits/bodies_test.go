// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
)

// bodyServer answers requests with their bodies. The user is in a header.
type bodyServer struct {
	*httptest.Server
	limits *BodyLimits
}

func startBodyServer(t *testing.T, limits *BodyLimits) *bodyServer {
	t.Helper()
	echo := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if body, err := io.ReadAll(req.Body); err == nil {
			_, _ = w.Write(body)
		}
	})
	isLongRunning := func(_ *http.Request, info *request.RequestInfo) bool { return info.Subresource == "proxy" }
	handler := WithBodies(echo, limits, isLongRunning)
	s := &bodyServer{limits: limits, Server: httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := request.WithUser(req.Context(), &user.DefaultInfo{Name: req.Header.Get("User")})
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
			IsResourceRequest: true, Verb: "create", APIGroup: v1alpha1.GroupName, APIVersion: "v1alpha1", Resource: "sandboxclaims",
			Subresource: strings.Trim(req.URL.Path, "/"),
		})
		handler.ServeHTTP(w, req.WithContext(ctx))
	}))}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// post sends a request whose body is what is written to the pipe. The answer comes on a channel.
func (s *bodyServer) post(ctx context.Context, t *testing.T, name, path string, http2 bool) (*io.PipeWriter, chan string) {
	t.Helper()
	transport := s.Client().Transport.(*http.Transport).Clone()
	if !http2 {
		transport.ForceAttemptHTTP2, transport.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
		transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	t.Cleanup(transport.CloseIdleConnections)
	body, write := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("User", name)
	answer := make(chan string, 1)
	go func() {
		resp, err := transport.RoundTrip(req)
		if err != nil {
			answer <- err.Error()
			return
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			text = nil
		}
		answer <- fmt.Sprintf("%d %s%s", resp.StatusCode, text, resp.Header.Get("Retry-After"))
	}()
	return write, answer
}

// TestSlowBodies: a user has at most as many requests whose bodies do not arrive as there are slots for a user, and
// the next is refused at once. Long-running requests, and bodies of other users, are not affected. A body
// that arrives late is handled, and releases its slot.
func TestSlowBodies(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			const most = 3
			slots := fairness.NewSlots(100, most)
			s := startBodyServer(t, &BodyLimits{
				slots: slots, slowAfter: time.Millisecond, timeout: time.Hour, maxBytes: 1 << 20, large: fairness.NewSlots(100, 100), work: fairness.NewSlots(1000, 1000), largeWait: time.Hour,
			})
			const eve = "system:serviceaccount:team:eve"
			var slow []*io.PipeWriter
			var answers []chan string
			for range most {
				write, answer := s.post(t.Context(), t, eve, "/", http2)
				slow, answers = append(slow, write), append(answers, answer)
			}
			expect.Eventually(t.Context(), t, func(context.Context) error {
				if held := slots.Held(); held != most {
					return fmt.Errorf("%d slots are taken", held)
				}
				return nil
			})
			write, answer := s.post(t.Context(), t, "system:serviceaccount:team:another", "/", http2)
			if got := <-answer; got != "429 1" {
				t.Errorf("one more: %q", got)
			}
			_ = write.Close()
			for name, path := range map[string]string{"ann": "/", eve: "/proxy"} {
				write, answer := s.post(t.Context(), t, name, path, http2)
				_, _ = io.WriteString(write, "body")
				_ = write.Close()
				if got := <-answer; got != "200 body" {
					t.Errorf("%s %s: %q", name, path, got)
				}
			}
			for i, write := range slow {
				_, _ = io.WriteString(write, "late")
				_ = write.Close()
				if got := <-answers[i]; got != "200 late" {
					t.Errorf("a slow body: %q", got)
				}
			}
			if held := slots.Held(); held != 0 {
				t.Errorf("%d slots are still taken", held)
			}
		})
	}
}

// TestBodiesThatDoNotArrive: a body has a deadline, after which the request is answered with 408.
func TestBodiesThatDoNotArrive(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			s := startBodyServer(t, &BodyLimits{
				slots: fairness.NewSlots(10, 10), slowAfter: time.Millisecond, timeout: time.Millisecond, maxBytes: 1000,
				large: fairness.NewSlots(100, 100), work: fairness.NewSlots(1000, 1000), largeWait: time.Hour,
			})
			write, answer := s.post(t.Context(), t, "ann", "/", http2)
			defer write.Close()
			go func() { _, _ = io.WriteString(write, strings.Repeat("x", 1000)) }() // all that may come, without an end
			if got := <-answer; got != "408 " {
				t.Errorf("the answer is %q", got)
			}
		})
	}
}

// TestLargeBodies: what is beyond the limit is read by the handler, which refuses it, and an error of the client is
// the handler's as well.
func TestLargeBodies(t *testing.T) {
	limits := NewBodyLimits(4, nil)
	read := func(body io.Reader) (string, error) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
		got, err := limits.read(httptest.NewRecorder(), req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(got)
		return string(text), err
	}
	if text, err := read(strings.NewReader("123456789")); text != "123456789" || err != nil {
		t.Errorf("a large body is %q, %v", text, err)
	}
	broken := io.MultiReader(strings.NewReader("12"), failed{net.ErrClosed}, bytes.NewReader(nil))
	if text, err := read(broken); text != "12" || err == nil {
		t.Errorf("a broken body is %q, %v", text, err)
	}
}

// TestSlotsOfWaitingClaims: a small apply that creates a claim has no slot while the claim waits for sandboxes.
func TestSlotsOfWaitingClaims(t *testing.T) {
	for name, tc := range map[string]struct {
		body       io.Reader
		work, held int
	}{
		"small":                 {strings.NewReader("{}"), 1, 0},
		"large":                 {bytes.NewReader(make([]byte, largeBody+1)), maxWork, 1},
		"of a length not known": {io.MultiReader(strings.NewReader("{}")), maxWork, 1},
	} {
		limits := NewBodyLimits(1<<20, nil)
		handler := WithBodies(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			if held, work := limits.large.Held(), limits.work.Held(); held != 1 || work != tc.work {
				t.Errorf("%s: %d slots, and %d of work, are held before the claim waits", name, held, work)
			}
			sandboxclaim.Waits(req.Context())
			if held, work := limits.large.Held(), limits.work.Held(); held != tc.held || work != 0 {
				t.Errorf("%s: %d slots, and %d of work, are held while the claim waits, want %d and 0", name, held, work, tc.held)
			}
			if err := updateOf(req, 1); err != nil || limits.work.Held() != 1 {
				t.Errorf("%s: a claim that exists after all: %v, %d slots of work", name, err, limits.work.Held())
			}
		}), limits, func(*http.Request, *request.RequestInfo) bool { return false })
		ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "ann"})
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
			IsResourceRequest: true, APIGroup: v1alpha1.GroupName, APIVersion: "v1alpha1", Resource: "sandboxclaims",
		})
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPatch, "/", tc.body))
		if held := limits.large.Held() + limits.work.Held(); held != 0 {
			t.Errorf("%s: %d slots are held afterwards", name, held)
		}
	}
}

// updateOf updates a stored object of so many bytes, as a handler does.
func updateOf(req *http.Request, bytes int) error {
	stored := &v1alpha1.SandboxClaim{}
	stored.Name = strings.Repeat("x", bytes)
	update := base.TrackFieldManagers(nil, rest.DefaultUpdatedObjectInfo(&v1alpha1.SandboxClaim{}), false, nil)
	_, err := update.UpdatedObject(req.Context(), stored)
	return err
}

// TestWork: requests take slots by the size of their body or of the object that they change, so that those of one user
// leave processor time to others.
func TestWork(t *testing.T) {
	for name, tc := range map[string]struct {
		method, query string
		body, object  int
		want          int
	}{
		"a small create":            {http.MethodPost, "", smallBody, 1 << 20, 0},
		"a create":                  {http.MethodPost, "", largeBody, 0, maxWork},
		"a large create":            {http.MethodPost, "", largeBody + 1, 0, maxWork},
		"a small dry run":           {http.MethodPost, "?dryRun=All", smallBody, 1 << 20, 0},
		"a dry run":                 {http.MethodPost, "?dryRun=All", 2*workUnit + 1, 0, 3},
		"an update":                 {http.MethodPut, "", 2*workUnit + 1, 0, 3},
		"a patch":                   {http.MethodPatch, "", 10, 10, 1},
		"a larger patch":            {http.MethodPatch, "", workUnit + 1, 10, 2},
		"a patch of a large object": {http.MethodPatch, "", 10, 3 * workUnit, 4}, // it has a few bytes more
		"a patch of a huge object":  {http.MethodPatch, "", 10, 1 << 20, maxWork},
		"a huge patch":              {http.MethodPatch, "", 1 << 20, 10, maxWork},
	} {
		limits, got := NewBodyLimits(2<<20, nil), -1
		handler := WithBodies(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if err := updateOf(req, tc.object); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			got = limits.work.Held()
			_, _ = io.WriteString(w, "{}") // the client may not read it
			if held := limits.work.Held(); held != 0 {
				t.Errorf("%s: %d slots are held while the response is written", name, held)
			}
		}), limits, func(*http.Request, *request.RequestInfo) bool { return false })
		ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "ann"})
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true})
		body := bytes.NewReader(make([]byte, tc.body))
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, tc.method, "/"+tc.query, body))
		if got != tc.want || limits.work.Held() != 0 {
			t.Errorf("%s has %d slots and then %d, want %d and 0", name, got, limits.work.Held(), tc.want)
		}
	}
}

// TestExemptUsers: our controllers need no slots of work.
func TestExemptUsers(t *testing.T) {
	limits := NewBodyLimits(1<<20, sets.New("controller"))
	handler := WithBodies(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if err := updateOf(req, 1<<20); err != nil || limits.work.Held() != 0 {
			t.Errorf("%v, %d slots", err, limits.work.Held())
		}
	}), limits, func(*http.Request, *request.RequestInfo) bool { return false })
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "controller"})
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true})
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPatch, "/", strings.NewReader("{}")))
}

// TestUpdateOfAnEndedRequest: an update that is still computed when its request has ended keeps its slots, and none begins
// later.
func TestUpdateOfAnEndedRequest(t *testing.T) {
	limits := NewBodyLimits(1<<20, nil)
	var end func()
	var later context.Context
	handler := WithBodies(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var err error
		if end, err = base.BeginUpdate(req.Context(), &v1alpha1.SandboxClaim{}); err != nil {
			t.Error(err)
		}
		later = req.Context()
		w.WriteHeader(http.StatusGatewayTimeout)
		_, _ = io.WriteString(w, "timeout") // of a recorder
	}), limits, func(*http.Request, *request.RequestInfo) bool { return false })
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "ann"})
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true})
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPatch, "/", strings.NewReader("{}")))
	if memory, work := limits.large.Held(), limits.work.Held(); memory != 1 || work != 1 {
		t.Errorf("while the update is computed, %d and %d slots are held, want 1 and 1", memory, work)
	}
	if _, err := base.BeginUpdate(later, &v1alpha1.SandboxClaim{}); !errors.Is(err, errEnded) {
		t.Errorf("an update begins when the request has ended: %v", err)
	}
	end()
	if held := limits.large.Held() + limits.work.Held(); held != 0 {
		t.Errorf("%d slots are held in the end", held)
	}
}

// TestWorkOfAnObject: a patch of a large object is refused if the user has no slots left for it.
func TestWorkOfAnObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := NewBodyLimits(1<<20, nil)
		limits.work, limits.largeWait = fairness.NewSlots(2*maxWork, maxWork), time.Millisecond
		held, err := limits.work.Wait(t.Context(), "ann")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []error{errors.New("too many"), nil} {
			handler := WithBodies(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if err := updateOf(req, 1<<20); apierrors.IsTooManyRequests(err) != (want != nil) {
					t.Errorf("%v, want %v", err, want)
				}
			}), limits, func(*http.Request, *request.RequestInfo) bool { return false })
			ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "ann"})
			ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true})
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPatch, "/", strings.NewReader("{}")))
			held()
		}
	})
}

// TestLargeRequests: a user has at most half of the slots for patches and requests with large bodies. More wait, and
// are refused in the end. Small requests, and those of others, are not affected.
func TestLargeRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := NewBodyLimits(1<<20, nil)
		limits.large, limits.largeWait = fairness.NewSlots(4, 2), time.Millisecond
		began, end := make(chan struct{}), make(chan struct{})
		type stands struct{}
		handler := WithBodies(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			if req.Context().Value(stands{}) != nil {
				began <- struct{}{}
				<-end
			}
		}), limits, func(*http.Request, *request.RequestInfo) bool { return false })
		do := func(ctx context.Context, name, method string, body io.Reader) *httptest.ResponseRecorder {
			ctx = request.WithUser(ctx, &user.DefaultInfo{Name: name})
			ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
				IsResourceRequest: true, APIGroup: v1alpha1.GroupName, APIVersion: "v1alpha1", Resource: "sandboxtemplates",
			})
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, "/?dryRun=All", body))
			return w
		}
		small, large := func() io.Reader { return strings.NewReader("{}") }, func() io.Reader { return bytes.NewReader(make([]byte, largeBody+1)) }
		var wait sync.WaitGroup
		for method, body := range map[string]io.Reader{http.MethodPatch: small(), http.MethodPost: large()} {
			wait.Go(func() {
				if w := do(context.WithValue(t.Context(), stands{}, true), "eve", method, body); w.Code != http.StatusOK {
					t.Errorf("%s within the limit: %d", method, w.Code)
				}
			})
			<-began
		}
		for _, tc := range []struct {
			name, method string
			body         io.Reader
			code         int
		}{
			{"eve", http.MethodPatch, small(), http.StatusTooManyRequests},
			{"eve", http.MethodPut, large(), http.StatusTooManyRequests},
			{"eve", http.MethodPost, io.MultiReader(small()), http.StatusTooManyRequests}, // of a length that is not known
			{"eve", http.MethodPost, small(), http.StatusOK},
			{"eve", http.MethodDelete, http.NoBody, http.StatusOK},
			{"ann", http.MethodPatch, small(), http.StatusOK},
		} {
			w := do(t.Context(), tc.name, tc.method, tc.body)
			if w.Code != tc.code || tc.code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
				t.Errorf("%s of %s: %d, want %d", tc.method, tc.name, w.Code, tc.code)
			}
		}
		close(end)
		wait.Wait()
		if w := do(t.Context(), "eve", http.MethodPatch, small()); w.Code != http.StatusOK {
			t.Errorf("after the others have ended: %d", w.Code)
		}
	})
}
