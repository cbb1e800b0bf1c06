// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// issue makes a key of a team, and another one with it, and returns both with the id of the first.
func (w *world) issue(team string) (id, parent, child string) {
	w.Helper()
	record, parent, err := w.keys.Issue(w.Context(), apikeys.Request{Team: team, Name: "parent"})
	if err != nil {
		w.Fatal(err)
	}
	_, child, err = w.keys.Issue(w.Context(), apikeys.Request{Team: team, Name: "child", By: &apikeys.Caller{Team: team, KeyID: record.ID}})
	if err != nil {
		w.Fatal(err)
	}
	return record.ID, parent, child
}

// revoke revokes a key and its descendants.
func (w *world) revoke(team, id string) {
	w.Helper()
	if _, err := w.keys.Revoke(w.Context(), team, id); err != nil {
		w.Fatal(err)
	}
}

// TestKeyIsRevokedDuringACreate: no key gets a sandbox that it has waited for if it, or the key that it was made
// with, is revoked meanwhile. The sandbox is given back.
func TestKeyIsRevokedDuringACreate(t *testing.T) {
	w := newWorld(t)
	const body = `{"templateID":"base","metadata":{"e2b.agents.kruise.io/claim-timeout-seconds":"300"}}`
	for name, headers := range map[string][]string{"plain": nil, "retries": {"Idempotency-Key", "1"}, "child": nil} {
		t.Run(name, func(t *testing.T) {
			one, team := *w, "team-"+name
			one.T = t
			w := &one
			w.pool(team, "base", 0)
			id, key, child := w.issue(team)
			if name == "child" {
				key = child
			}
			answers := w.askLater(key, body, headers...)
			w.awaitClaim(team)
			w.revoke(team, id)
			w.stock(team)
			if a := <-answers; a.code != http.StatusUnauthorized || strings.Contains(string(a.body), "envdAccessToken") {
				t.Errorf("%d %s", a.code, a.body)
			}
			expect.Eventually(t.Context(), t, func(ctx context.Context) error {
				claims, err := w.server.Client.AgentsV1alpha1().SandboxClaims(team).List(ctx, metav1.ListOptions{})
				if err == nil && len(claims.Items) > 0 {
					err = fmt.Errorf("%d claims are left", len(claims.Items))
				}
				return err
			})
		})
	}
}

// TestKeyIsRevokedDuringAConnect: nor does a key get the access token of a sandbox.
func TestKeyIsRevokedDuringAConnect(t *testing.T) {
	w := newWorld(t)
	w.pool("team", "base", 1)
	id, key, _ := w.issue("team")
	box := w.create(key, `{"templateID":"base"}`)
	w.want(http.StatusNoContent, key, "POST", "/sandboxes/"+box+"/pause", "/sandboxes/{id}/pause", ``)
	w.once("GET", "/sandboxes/"+w.sandbox(box).Name, func() error { // while it waits
		w.revoke("team", id)
		return nil
	})
	if a := w.ask(key, "POST", "/sandboxes/"+box+"/connect", "", ``); a.code != http.StatusUnauthorized {
		t.Errorf("%d %s", a.code, a.body)
	}
}

// TestKeyIsRevokedDuringABody: a request whose body comes after its key was revoked has no effect.
func TestKeyIsRevokedDuringABody(t *testing.T) {
	w := newWorld(t)
	w.pool("team", "base", 1)
	box := w.create(w.key("team"), `{"templateID":"base"}`)
	for _, call := range []string{"pause", "timeout", "connect"} {
		id, key, _ := w.issue("team")
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// The server answers 100 Continue when it reads the body, after it has checked the key.
		_, err = fmt.Fprintf(conn, "POST /sandboxes/%s/%s HTTP/1.1\r\nHost: h\r\nX-Api-Key: %s\r\nExpect: 100-continue\r\nContent-Length: 14\r\n\r\n", box, call, key)
		if err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(conn)
		if line, err := reader.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
			t.Fatalf("%q, %v", line, err)
		}
		_, _ = reader.ReadString('\n')
		w.revoke("team", id)
		if _, err := io.WriteString(conn, `{"timeout":60}`); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d", call, resp.StatusCode)
		}
	}
}

// TestTokenOfTheFuture: a nextToken of a revision that is not reached yet is refused at once.
func TestTokenOfTheFuture(t *testing.T) {
	w := newWorld(t)
	key := w.key("team")
	next := base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":9000000000,"start":"a\u0000"}`))
	token := base64.RawURLEncoding.EncodeToString([]byte(next))
	asked := 0
	before := func(r *http.Request) error {
		if !strings.HasSuffix(r.URL.Path, "/sandboxes") {
			return nil
		}
		if asked++; asked > 1 {
			return errors.New("asked before")
		}
		return nil
	}
	w.before.Store(&before)
	w.want(http.StatusBadRequest, key, "GET", "/v2/sandboxes?nextToken="+token, "/v2/sandboxes", "")
	if asked != 1 {
		t.Errorf("the cluster was asked %d times", asked)
	}
}

// TestResumeWhoseSetupFails: a sandbox that runs after a pause or a restart, and cannot be used, is no success.
func TestResumeWhoseSetupFails(t *testing.T) {
	w := newWorld(t)
	w.pool("team", "base", 4)
	key := w.key("team")
	ids := map[string]string{}
	for _, call := range []string{"connect", "resume", "running", "volumes"} {
		ids[call] = w.create(key, `{"templateID":"base"}`)
		if call != "running" {
			w.want(http.StatusNoContent, key, "POST", "/sandboxes/"+ids[call]+"/pause", "/sandboxes/{id}/pause", ``)
		}
	}
	w.stop()
	for name, id := range ids {
		call, failed := "connect", condition(v1alpha1.SandboxConditionRuntimeInitialized, false)
		switch name {
		case "resume":
			call = "resume"
		case "volumes":
			failed.Type = v1alpha1.SandboxConditionVolumesMounted
		}
		failed.Reason, failed.Message = v1alpha1.ReasonFailed, "it refused the token"
		fail := func() error {
			return w.isIn(id, v1alpha1.SandboxRunning, condition(v1alpha1.SandboxConditionReady, true), failed)
		}
		if name == "running" {
			if err := fail(); err != nil {
				t.Fatal(err)
			}
		} else {
			w.once("GET", "/sandboxes/"+w.sandbox(id).Name, fail)
		}
		a := w.want(http.StatusInternalServerError, key, "POST", "/sandboxes/"+id+"/"+call, "/sandboxes/{id}/"+call, ``)
		if text := string(a.body); !strings.Contains(text, "it refused the token") || strings.Contains(text, "envdAccessToken") {
			t.Errorf("%s: %s", name, text)
		}
	}
}
