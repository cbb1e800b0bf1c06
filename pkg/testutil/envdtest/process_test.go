// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package envdtest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	c := newEnvd(t)
	if status, body := c.do(t, http.MethodPost, "/files?path=/tmp/a", "application/octet-stream", "content"); status != http.StatusOK {
		t.Fatal(body)
	}
	for script, want := range map[string]struct {
		stdout, stderr string
		code           int
	}{
		"echo hello":                      {stdout: "hello\n"},
		`echo "hello world"; echo 'a'`:    {stdout: "hello world\na\n"},
		"echo mode $MODE":                 {stdout: "mode test\n"},
		"env":                             {stdout: "MODE=test\n"},
		"cat /tmp/a":                      {stdout: "content"},
		"cat /tmp/b":                      {stderr: "cat: /tmp/b: No such file or directory\n", code: 1},
		"echo bad >&2; exit 3; echo late": {stderr: "bad\n", code: 3},
		"sleep 0.01; echo woken":          {stdout: "woken\n"},
		"sleep long":                      {stderr: "sleep: invalid time interval 'long'\n", code: 1},
		"await /tmp/a":                    {},
		"frob":                            {stderr: "/bin/bash: line 1: frob: command not found\n", code: 127},
	} {
		t.Run(script, func(t *testing.T) {
			next := c.start(t, script)
			if first, ok := next(); !ok || first.Event["start"].PID == 0 {
				t.Fatalf("the first message is %+v", first)
			}
			var stdout, stderr string
			for {
				m, ok := next()
				if !ok {
					t.Fatal("no end")
				}
				if end, ok := m.Event["end"]; ok {
					if end.ExitCode != want.code || !end.Exited || end.Status != fmt.Sprintf("exit status %d", want.code) {
						t.Errorf("ended with %+v", end)
					}
					break
				}
				stdout += string(m.Event["data"].Stdout)
				stderr += string(m.Event["data"].Stderr)
			}
			if last, ok := next(); !ok || last.flags != 2 || last.Error != nil {
				t.Errorf("the stream ends with %+v", last)
			}
			if _, ok := next(); ok || stdout != want.stdout || stderr != want.stderr {
				t.Errorf("stdout %q, stderr %q", stdout, stderr)
			}
		})
	}
	t.Run("another program", func(t *testing.T) {
		m, ok := c.startBody(t, []byte(`{"process":{"cmd":"/bin/sh"}}`))()
		if !ok || m.flags != 2 || m.Error["code"] != "invalid_argument" {
			t.Errorf("told %+v", m)
		}
	})
}

// Output comes while the process runs, which is listed then and ends by a signal.
func TestStreamListAndSignal(t *testing.T) {
	c := newEnvd(t)
	next := c.start(t, "echo first; await /tmp/go; echo second; await /tmp/never")
	first, _ := next()
	pid := first.Event["start"].PID
	if m, _ := next(); string(m.Event["data"].Stdout) != "first\n" {
		t.Fatalf("not the output before the wait: %+v", m)
	}
	if _, body := c.call(t, "process.Process/List", `{}`); !strings.Contains(body, fmt.Sprintf(`"pid":%d`, pid)) || !strings.Contains(body, "await /tmp/go") {
		t.Errorf("listed: %s", body)
	}
	if status, body := c.do(t, http.MethodPost, "/files?path=/tmp/go", "application/octet-stream", ""); status != http.StatusOK {
		t.Fatal(body)
	}
	if m, _ := next(); string(m.Event["data"].Stdout) != "second\n" {
		t.Fatalf("not the output after the wait: %+v", m)
	}
	kill := fmt.Sprintf(`{"process":{"pid":%d},"signal":"SIGNAL_SIGKILL"}`, pid)
	if status, body := c.call(t, "process.Process/SendSignal", kill); status != http.StatusOK || body != "{}" {
		t.Errorf("%d %s", status, body)
	}
	if m, _ := next(); m.Event["end"].ExitCode != -1 || m.Event["end"].Exited {
		t.Errorf("ended with %+v", m)
	}
	if _, body := c.call(t, "process.Process/List", `{}`); body != `{"processes":[]}` {
		t.Errorf("listed: %s", body)
	}
	if status, body := c.call(t, "process.Process/SendSignal", kill); status != http.StatusNotFound || !strings.Contains(body, `"not_found"`) {
		t.Errorf("%d %s", status, body)
	}
}
