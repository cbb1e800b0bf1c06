// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// version is what an SDK sends, as it stands on the wire.
type version struct {
	create, body       string
	list               string
	connect, connected string // connected is the body of connect; without connect there is none
	pause, paused      string
	timeout            time.Duration // that the sandbox gets
}

// oldBody is the body of a create that all SDKs before 2.51 send.
const oldBody = `{"templateID":"POOL","metadata":{"team.io/app":"a b&c=d/ü","sdk":"SDK"},"envVars":{"A":"b"},"timeout":300,"secure":true,"allow_internet_access":true}`

var versions = map[string]version{
	"1.13.2": {
		create: "POST /sandboxes", body: oldBody,
		list:    "GET /sandboxes?metadata=",
		timeout: 300 * time.Second,
	},
	"2.0.1": {
		create: "POST /sandboxes", body: oldBody,
		list:    "GET /v2/sandboxes?state=running,paused&metadata=",
		connect: "POST /sandboxes/#/resume", connected: `{"timeout":300}`,
		pause:   "POST /sandboxes/#/pause",
		timeout: 300 * time.Second,
	},
	"2.8.4": {
		create: "POST /sandboxes", body: strings.Replace(oldBody, `"secure"`, `"autoPause":true,"secure"`, 1),
		list:    "GET /v2/sandboxes?limit=100&metadata=",
		connect: "POST /sandboxes/#/connect", connected: `{"timeout":300}`,
		pause:   "POST /sandboxes/#/pause",
		timeout: 300 * time.Second,
	},
	"2.50.0": {
		create: "POST /sandboxes", body: strings.Replace(oldBody, `"secure"`, `"autoPause":true,"autoResume":{"enabled":true},"secure"`, 1),
		list:    "GET /v2/sandboxes?metadata=",
		connect: "POST /sandboxes/#/connect", connected: `{"timeout":300}`,
		pause: "POST /sandboxes/#/pause", paused: `{"memory":true}`,
		timeout: 300 * time.Second,
	},
	"2.51.0": {
		create: "POST /v2/sandboxes", body: `{"templateID":"POOL","metadata":{"team.io/app":"a b&c=d/ü","sdk":"SDK"}}`,
		list:    "GET /v2/sandboxes?metadata=",
		connect: "POST /v2/sandboxes/#/connect", connected: `{}`,
		pause: "POST /sandboxes/#/pause", paused: `{}`,
		timeout: 300 * time.Second,
	},
	"2.51.0 with a timeout": {
		create: "POST /v2/sandboxes", body: `{"templateID":"POOL","metadata":{"team.io/app":"a b&c=d/ü","sdk":"SDK"},"timeout":900,"autoPause":true,"autoPauseMemory":false}`,
		list:    "GET /v2/sandboxes?metadata=",
		connect: "POST /v2/sandboxes/#/connect", connected: `{"timeout":900,"memory":false}`,
		pause: "POST /sandboxes/#/pause", paused: `{"memory":false}`,
		timeout: 900 * time.Second,
	},
}

// odd is the metadata of all versions as SDKs encode it: each key and each value, the whole,
// and the query.
const odd = "team.io%25252Fapp%3Da%252520b%252526c%25253Dd%25252F%2525C3%2525BC%26sdk%3D"

// TestVersions makes the requests of each version, below both prefixes.
func TestVersions(t *testing.T) {
	t.Parallel()
	g := start(t)
	pool := g.pool(t, "pool", int32(2*len(versions)))
	for name, v := range versions {
		for _, prefix := range []string{"", "/kruise/api"} {
			t.Run(name+prefix, func(t *testing.T) {
				t.Parallel()
				sdk := strings.NewReplacer(" ", "-", "/", "-", ".", "-").Replace(name + prefix)
				call := func(route, id, body string) answer {
					return g.call(t, strings.Replace(route, " ", " "+prefix, 1), id, body)
				}
				made := call(v.create, "", strings.NewReplacer("POOL", pool, "SDK", sdk).Replace(v.body))
				if made.status != http.StatusCreated {
					t.Fatalf("create: %d %s", made.status, made.text)
				}
				checkMade(t, made, pool)
				id := made.id(t)
				checkInfo(t, call("GET /sandboxes/#", id, ""), id, v.timeout)
				checkList(t, call(v.list+odd+sdk, "", ""), id)
				if a := call("POST /sandboxes/#/timeout", id, `{"timeout":600}`); a.status != http.StatusNoContent {
					t.Errorf("timeout: %d %s", a.status, a.text)
				}
				if v.connect != "" {
					v.checkPause(t, call, id)
				}
				if a := call("DELETE /sandboxes/#", id, ""); a.status != http.StatusNoContent || a.text != "" {
					t.Errorf("kill: %d %s", a.status, a.text)
				}
				call("DELETE /sandboxes/#", id, "").failed(t, http.StatusNotFound)
				call("GET /sandboxes/#", id, "").failed(t, http.StatusNotFound)
			})
		}
	}
}

func (v version) checkPause(t *testing.T, call func(route, id, body string) answer, id string) {
	t.Helper()
	resumes := strings.HasSuffix(v.connect, "/resume")
	running := call(v.connect, id, v.connected)
	switch {
	case resumes:
		running.failed(t, http.StatusConflict)
	case running.status != http.StatusOK:
		t.Errorf("connect to one that runs: %d %s", running.status, running.text)
	}
	if a := call(v.pause, id, v.paused); a.status != http.StatusNoContent {
		t.Errorf("pause: %d %s", a.status, a.text)
	}
	if state := call("GET /sandboxes/#", id, "").field(t, "state"); state != "paused" {
		t.Errorf("it is %s", state)
	}
	call(v.pause, id, v.paused).failed(t, http.StatusConflict)
	if resumes {
		// These set the timeout first, and expect that to fail.
		if a := call("POST /sandboxes/#/timeout", id, `{"timeout":600}`); a.status < http.StatusBadRequest {
			t.Errorf("timeout of one that is paused: %d", a.status)
		}
	}
	resumed := call(v.connect, id, v.connected)
	if resumed.status != http.StatusCreated || resumed.id(t) != id {
		t.Errorf("connect to one that is paused: %d %s", resumed.status, resumed.text)
	}
	if state := call("GET /sandboxes/#", id, "").field(t, "state"); state != "running" {
		t.Errorf("it is %s", state)
	}
}

// checkMade checks the fields that SDKs need of a create.
func checkMade(t *testing.T, made answer, pool string) {
	t.Helper()
	var body map[string]any
	if err := json.Unmarshal([]byte(made.text), &body); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"templateID", "sandboxID", "clientID", "envdVersion", "envdAccessToken"} {
		if _, ok := body[name].(string); !ok {
			t.Errorf("%s is missing: %s", name, made.text)
		}
	}
	if body["templateID"] != pool || body["envdAccessToken"] == "" {
		t.Errorf("made %s", made.text)
	}
}

// checkInfo checks the fields that SDKs need of a get.
func checkInfo(t *testing.T, got answer, id string, timeout time.Duration) {
	t.Helper()
	var info struct {
		SandboxID, TemplateID, ClientID, State, EnvdVersion *string
		StartedAt, EndAt                                    time.Time
		CPUCount, MemoryMB, DiskSizeMB                      *int
		Metadata                                            map[string]string
	}
	if err := json.Unmarshal([]byte(got.text), &info); err != nil || got.status != http.StatusOK {
		t.Fatalf("get: %d %v %s", got.status, err, got.text)
	}
	for _, missing := range []bool{
		info.SandboxID == nil, info.TemplateID == nil, info.ClientID == nil, info.State == nil, info.EnvdVersion == nil,
		info.CPUCount == nil, info.MemoryMB == nil, info.DiskSizeMB == nil,
	} {
		if missing {
			t.Fatalf("a field is missing: %s", got.text)
		}
	}
	if *info.SandboxID != id || *info.State != "running" || *info.CPUCount != 1 || *info.MemoryMB != 100 || info.Metadata["team.io/app"] != "a b&c=d/ü" {
		t.Errorf("got %s", got.text)
	}
	if lives := info.EndAt.Sub(info.StartedAt); (lives - timeout).Abs() > 5*time.Second {
		t.Errorf("it lives for %s, want %s", lives, timeout)
	}
}

func checkList(t *testing.T, got answer, id string) {
	t.Helper()
	var infos []struct{ SandboxID string }
	if err := json.Unmarshal([]byte(got.text), &infos); err != nil || got.status != http.StatusOK {
		t.Fatalf("list: %d %v %s", got.status, err, got.text)
	}
	if len(infos) != 1 || !slices.ContainsFunc(infos, func(info struct{ SandboxID string }) bool { return info.SandboxID == id }) {
		t.Errorf("the list has not just %s: %s", id, got.text)
	}
	if strings.Contains(got.text, "envdAccessToken") {
		t.Error("the list tells tokens")
	}
}
