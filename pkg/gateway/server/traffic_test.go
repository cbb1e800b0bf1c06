// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	versioned "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
)

// team is a client for every team.
type team struct{ versioned.Interface }

// For returns the client.
func (t team) For(string) (versioned.Interface, error) { return t.Interface, nil }

// TestTokenIsAskedForOnce: those who come for a private sandbox at the same time share one
// question.
func TestTokenIsAskedForOnce(t *testing.T) {
	var asked atomic.Int32
	goOn := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		<-goOn
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaimRuntimeAccess","status":{"sandboxes":[{"name":"box","uid":"uid","accessToken":"secret"}]}}`)
	}))
	defer api.Close()
	client, err := versioned.NewForConfig(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	tokens := newTokenCache(team{client})
	route := routes.Route{Namespace: "team", Name: "box", UID: "uid", Claim: "claim"}
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			if token, err := tokens.Get(t.Context(), route); token != "secret" || err != nil {
				t.Errorf("%q, %v", token, err)
			}
		})
	}
	close(goOn)
	asking.Wait()
	if token, err := tokens.Get(t.Context(), route); token != "secret" || err != nil || asked.Load() > 2 {
		t.Errorf("%q, %v, asked %d times", token, err, asked.Load())
	}
}

// roundTripper sends requests by a function.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTokenReadHasDeadline: the read of a token ends within proxyTokenTimeout.
func TestTokenReadHasDeadline(t *testing.T) {
	var longest time.Duration
	client, err := versioned.NewForConfig(&rest.Config{Host: "http://api", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if deadline, ok := r.Context().Deadline(); ok {
			longest = time.Until(deadline)
		}
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: r}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	token, err := newTokenCache(team{client}).Get(ctx, routes.Route{Namespace: "team", Name: "box", UID: "uid", Claim: "claim"})
	if err == nil || longest == 0 || longest > proxyTokenTimeout {
		t.Errorf("%q, %v after at most %v", token, err, longest)
	}
}

// TestSandboxWithoutAToken: that a sandbox has no token is no failure to read it, so the client is refused and
// does not try again.
func TestSandboxWithoutAToken(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaimRuntimeAccess","status":{"sandboxes":[{"name":"box","uid":"uid"}]}}`)
	}))
	defer api.Close()
	client, err := versioned.NewForConfig(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	if token, err := newTokenCache(team{client}).Get(t.Context(), routes.Route{Namespace: "team", Name: "box", UID: "uid", Claim: "claim"}); token != "" || err != nil {
		t.Errorf("%q, %v", token, err)
	}
}

// TestAsUnavailable: what says nothing of the sandbox is to be tried again.
func TestAsUnavailable(t *testing.T) {
	sandboxes := v1alpha1.Resource("sandboxes")
	for _, about := range []error{
		&e2b.Error{Code: http.StatusNotFound}, e2b.ErrPausedAgain, context.DeadlineExceeded,
		apierrors.NewForbidden(sandboxes, "box", nil), apierrors.NewBadRequest("no"),
	} {
		if errors.Is(asUnavailable(about), routes.ErrUnavailable) {
			t.Errorf("%v is taken for an outage", about)
		}
	}
	for _, outage := range []error{
		io.ErrUnexpectedEOF, apierrors.NewServiceUnavailable("away"), apierrors.NewTooManyRequests("busy", 1),
		apierrors.NewInternalError(io.EOF), apierrors.NewConflict(sandboxes, "box", nil),
	} {
		if err := asUnavailable(outage); !errors.Is(err, routes.ErrUnavailable) || !errors.Is(err, outage) {
			t.Errorf("%v is taken for the sandbox's: %v", outage, err)
		}
	}
}
