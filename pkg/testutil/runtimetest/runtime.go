// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimetest

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Version is that of envd which runtimes say they are.
const Version = "0.4.0"

// Runtime is one agent-runtime. Its /init is open at first; once a token is set, that
// token has to come with each further call, else the answer is 401.
type Runtime struct {
	// IP is its address. It listens there at Port.
	IP string

	listener net.Listener
	server   *http.Server
	fleet    func() Script
	served   sync.WaitGroup

	mu      sync.Mutex
	actions []Action
	calls   []Call
	inits   int
	token   string
	latest  time.Time // of the timestamps of /init
	env     map[string]string
	mounts  []Mount
	mount   MountResult
}

func newRuntime(ip string, listener net.Listener, config *tls.Config, fleet func() Script) *Runtime {
	rt := &Runtime{IP: ip, listener: listener, fleet: fleet, env: map[string]string{}}
	rt.server = &http.Server{Handler: rt, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
	rt.served.Go(func() {
		if config != nil {
			_ = rt.server.ServeTLS(listener, "", "") // ends with Stop
			return
		}
		_ = rt.server.Serve(listener)
	})
	return rt
}

// URL is the base URL of a runtime that does not speak TLS.
func (rt *Runtime) URL() string { return "http://" + address(rt.IP, Port) }

// Stop ends the runtime: from now on connections are refused.
func (rt *Runtime) Stop() {
	_ = rt.server.Close() // and the listener
	rt.served.Wait()
}

// Act lets the next calls, so many, be dealt with as an action says. Several of these
// come one after the other.
func (rt *Runtime) Act(action Action, times int) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.actions = append(rt.actions, slices.Repeat([]Action{action}, times)...)
}

// Reset makes the runtime as new: without a token, and with nothing counted. That is what
// it is in the next pod of a sandbox.
func (rt *Runtime) Reset() {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.actions, rt.calls, rt.inits, rt.token, rt.latest, rt.env, rt.mounts = nil, nil, 0, "", time.Time{}, map[string]string{}, nil
}

// Calls returns all calls that the runtime got and has dealt with, in that order.
func (rt *Runtime) Calls() []Call {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return slices.Clone(rt.calls)
}

// Inits is how often /init had an effect.
func (rt *Runtime) Inits() int {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.inits
}

// Token is the access token that was set; empty at first.
func (rt *Runtime) Token() string {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.token
}

// SetToken sets the access token, as a foreign caller of /init would.
func (rt *Runtime) SetToken(token string) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.token = token
}

// Env is the environment that was set.
func (rt *Runtime) Env() map[string]string {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return maps.Clone(rt.env)
}

// ServeHTTP implements http.Handler.
func (rt *Runtime) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the client is gone
	}
	call := Call{Method: req.Method, Path: req.URL.Path, Header: req.Header.Clone(), Body: body}
	action := rt.action(call)
	if !pause(req, action) {
		return
	}
	if action.Die == Before {
		rt.die(call)
	}
	answer := answer{status: action.Status, body: []byte(action.Body), header: action.Header}
	if action.Status == 0 {
		answer = rt.deal(call)
	}
	if action.Die == After || !pause(req, Action{Hold: action.Linger}) {
		rt.die(call)
	}
	call.Status = answer.status
	rt.record(call)
	maps.Copy(w.Header(), answer.header)
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body) // or the client is gone
}

func (rt *Runtime) action(call Call) Action {
	rt.mu.Lock()
	if len(rt.actions) > 0 {
		defer rt.mu.Unlock()
		action := rt.actions[0]
		rt.actions = rt.actions[1:]
		return action
	}
	rt.mu.Unlock()
	if script := rt.fleet(); script != nil {
		return script(rt, call)
	}
	return Action{}
}

// pause reports whether the client is still there after the pauses of an action.
func pause(req *http.Request, action Action) bool {
	if action.Delay > 0 {
		select {
		case <-time.After(action.Delay):
		case <-req.Context().Done():
			return false
		}
	}
	if action.Hold != nil {
		select {
		case <-action.Hold:
		case <-req.Context().Done():
			return false
		}
	}
	return true
}

// die closes the connection.
func (rt *Runtime) die(call Call) {
	rt.record(call)
	panic(http.ErrAbortHandler)
}

func (rt *Runtime) record(call Call) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.calls = append(rt.calls, call)
}

type answer struct {
	status int
	body   []byte
	header http.Header
}

// deal does what a call asks for.
func (rt *Runtime) deal(call Call) answer {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	switch {
	case call.Method == http.MethodPost && call.Path == "/init":
		return rt.init(call)
	case call.Path == "/health":
		return answer{status: http.StatusNoContent}
	case rt.token != "" && call.Header.Get("X-Access-Token") != rt.token:
		return answer{status: http.StatusUnauthorized}
	case call.Method != http.MethodPost:
		return answer{status: http.StatusMethodNotAllowed}
	case call.Path == "/v1/storage/mounts":
		return rt.mountByEndpoint(call)
	case call.Path == "/process.Process/Start":
		return rt.startProcess(call)
	}
	return answer{status: http.StatusNotFound}
}

func (rt *Runtime) init(call Call) answer {
	var asked struct {
		EnvVars     map[string]string `json:"envVars"`
		AccessToken string            `json:"accessToken"`
		Timestamp   time.Time         `json:"timestamp"`
	}
	if err := json.Unmarshal(call.Body, &asked); err != nil {
		return answer{status: http.StatusBadRequest}
	}
	if rt.token != "" && asked.AccessToken != rt.token {
		return answer{status: http.StatusUnauthorized}
	}
	done := answer{status: http.StatusNoContent, header: http.Header{"X-Envd-Version": {Version}}}
	if !asked.Timestamp.IsZero() && !asked.Timestamp.After(rt.latest) {
		return done // a call that came late
	}
	rt.inits++
	rt.token = asked.AccessToken
	if !asked.Timestamp.IsZero() {
		rt.latest = asked.Timestamp
	}
	maps.Copy(rt.env, asked.EnvVars)
	return done
}
