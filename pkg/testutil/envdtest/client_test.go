// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package envdtest_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/envdtest"
)

const token = "the-token"

// client calls an envd.
type client struct {
	base, token string
}

// newEnvd returns an envd with the token, by /init, and a client that has it.
func newEnvd(t *testing.T) *client {
	t.Helper()
	c := &client{base: envdtest.Start(t).Next().URL()}
	if status, _ := c.do(t, http.MethodPost, "/init", "application/json", `{"accessToken":"`+token+`","envVars":{"MODE":"test"}}`); status != http.StatusNoContent {
		t.Fatalf("/init: %d", status)
	}
	c.token = token
	return c
}

func (c *client) open(t *testing.T, method, path, kind, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, c.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if c.token != "" {
		req.Header.Set("X-Access-Token", c.token)
	}
	req.Close = true // the next fleet may have the same addresses
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func (c *client) do(t *testing.T, method, path, kind, body string) (int, string) {
	t.Helper()
	resp := c.open(t, method, path, kind, body)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

// call makes a unary call.
func (c *client) call(t *testing.T, procedure, body string) (int, string) {
	t.Helper()
	return c.do(t, http.MethodPost, "/"+procedure, "application/json", body)
}

// message is one of a stream.
type message struct {
	flags byte
	Event map[string]struct {
		PID            int
		Stdout, Stderr []byte
		ExitCode       int
		Exited         bool
		Status         string
	}
	Error map[string]string
}

// start runs a script and returns its messages as they come; the second is false after the
// last one.
func (c *client) start(t *testing.T, script string) func() (message, bool) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"process": map[string]any{"cmd": "/bin/bash", "args": []string{"-l", "-c", script}}, "stdin": false})
	if err != nil {
		t.Fatal(err)
	}
	return c.startBody(t, body)
}

func (c *client) startBody(t *testing.T, body []byte) func() (message, bool) {
	t.Helper()
	var envelope bytes.Buffer
	envelope.WriteByte(0)
	_ = binary.Write(&envelope, binary.BigEndian, uint32(len(body)))
	envelope.Write(body)
	resp := c.open(t, http.MethodPost, "/process.Process/Start", "application/connect+json", envelope.String())
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "application/connect+json" {
		t.Fatalf("start: %s, %s", resp.Status, kind)
	}
	return func() (message, bool) {
		t.Helper()
		var head [5]byte
		if _, err := io.ReadFull(resp.Body, head[:]); err == io.EOF {
			return message{}, false
		} else if err != nil {
			t.Fatal(err)
		}
		content := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(resp.Body, content); err != nil {
			t.Fatal(err)
		}
		m := message{flags: head[0]}
		if err := json.Unmarshal(content, &m); err != nil {
			t.Fatalf("%v: %s", err, content)
		}
		return m, true
	}
}
