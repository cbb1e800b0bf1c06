// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
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
	handler := withDeadlines(WithBodies(echo, limits, isLongRunning), time.Minute, clock.RealClock{})
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
		ctx := context.WithValue(t.Context(), deadlinesKey{}, &deadlines{})
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", body)
		got, err := limits.read(req)
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
