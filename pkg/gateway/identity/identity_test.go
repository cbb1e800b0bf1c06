// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// server notes who asks, and how many connections and kinds of them there are.
type server struct {
	*httptest.Server
	connections atomic.Int64

	mu     sync.Mutex
	asked  map[string][]string // groups by user
	keyIDs []string            // that requests had in extra fields
	http2  bool
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{asked: map[string][]string{}, http2: true}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.http2 = s.http2 && r.ProtoMajor == 2
		s.keyIDs = append(s.keyIDs, r.Header.Values("Impersonate-Extra-E2b.agents.kruise.io%2fkey-Id")...)
		if r.Header.Get("Authorization") == "Bearer own" {
			s.asked[r.Header.Get("Impersonate-User")] = r.Header.Values("Impersonate-Group")
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v1alpha1.SandboxClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxClaim"}, ObjectMeta: metav1.ObjectMeta{Name: "c"},
		})
	}))
	s.EnableHTTP2 = true
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *server) config() *rest.Config {
	return &rest.Config{Host: s.URL, BearerToken: "own", QPS: 1e-4, Burst: getsOfATeam, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func get(t *testing.T, i *Identity, team string) {
	t.Helper()
	client, err := i.For(team)
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := client.AgentsV1alpha1().SandboxClaims(team).Get(t.Context(), "c", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// getsOfATeam is how many requests a team has. The next one comes hours later.
const getsOfATeam = 4

// Many teams ask over one connection, each as itself, and each as often as the limit of the
// configuration lets it, but no more.
func TestOneConnection(t *testing.T) {
	s := newServer(t)
	i := New(s.config())
	get(t, i, "first")
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			for range getsOfATeam {
				get(t, i, fmt.Sprint("team-", n))
			}
		})
	}
	all.Wait()
	client, err := i.For("team-0")
	if err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Minute) // is not waited for
	defer cancel()
	if _, err := client.AgentsV1alpha1().SandboxClaims("team-0").Get(soon, "c", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "rate limiter") {
		t.Errorf("beyond its limit, team-0 gets %v", err)
	}
	if got := s.connections.Load(); got != 1 || !s.http2 {
		t.Errorf("%d connections, all of them HTTP/2: %v", got, s.http2)
	}
	if len(s.asked) != 51 {
		t.Errorf("asked as %d users", len(s.asked))
	}
	for n := range 50 {
		if groups, ok := s.asked["system:serviceaccount:"+fmt.Sprint("team-", n)+":sandlot-e2b"]; !ok || len(groups) > 0 {
			t.Errorf("team %d: asked %v with groups %q", n, ok, groups)
		}
	}
}

func TestGroups(t *testing.T) {
	s := newServer(t)
	get(t, New(s.config(), "system:masters", "b"), "team")
	if got := s.asked[v1alpha1.E2BUser("team")]; !slices.Equal(got, []string{"system:masters", "b"}) {
		t.Errorf("asked with groups %q", got)
	}
}

// TestKeyID checks that a request names its API key, also when its client was made for another key.
func TestKeyID(t *testing.T) {
	s := newServer(t)
	i := New(s.config())
	for _, id := range []string{"", "0123456789abcdef", "", "fedcba9876543210"} {
		client, err := i.For("team")
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		if id != "" {
			ctx = WithKeyID(ctx, id)
		}
		if _, err := client.AgentsV1alpha1().SandboxClaims("team").Get(ctx, "c", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"0123456789abcdef", "fedcba9876543210"}; !slices.Equal(s.keyIDs, want) {
		t.Errorf("requests of the keys %q, want %q", s.keyIDs, want)
	}
}

// A client that was forgotten is made again, on the same connection.
func TestBounded(t *testing.T) {
	s := newServer(t)
	i := New(s.config())
	get(t, i, "first")
	for n := range maxClients + 10 {
		if _, err := i.For(fmt.Sprint("team-", n)); err != nil {
			t.Fatal(err)
		}
	}
	if got := i.clients.Len(); got != maxClients {
		t.Errorf("keeps %d clients", got)
	}
	get(t, i, "first")
	if got := s.connections.Load(); got != 1 {
		t.Errorf("%d connections", got)
	}
	a, errA := i.For("first")
	b, errB := i.For("first")
	if a != b || errA != nil || errB != nil {
		t.Errorf("two clients for one team: %v, %v", errA, errB)
	}
}

func TestRefused(t *testing.T) {
	s := newServer(t)
	for _, team := range []string{"", "a:b", "a/b", "Team", "a.b", strings.Repeat("a", 41), "x\r\nImpersonate-Group: system:masters"} {
		if client, err := New(s.config()).For(team); err == nil || client != nil {
			t.Errorf("a client for %q", team)
		}
	}
	config := s.config()
	config.Impersonate.UserName = "someone"
	if _, err := New(config).For("team"); err == nil || !strings.Contains(err.Error(), "someone") {
		t.Errorf("a client that impersonates twice: %v", err)
	}
	config = s.config()
	config.TLSClientConfig = rest.TLSClientConfig{CAFile: "/nonexistent"}
	if _, err := New(config).For("team"); err == nil {
		t.Error("a client without its CA")
	}
}
