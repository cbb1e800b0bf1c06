// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"net/http"

	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

// maxTries is how often a request is forwarded. For a moment after a pause, the table may still say that
// the sandbox runs, so the request is not forwarded and the sandbox has to be resumed.
const maxTries = 6

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to, err := p.destinationOf(r)
	if err != nil {
		problem{Code: http.StatusBadRequest, Message: err.Error()}.write(w)
		return
	}
	route, err := p.options.Table.Find(r.Context(), to.id)
	if err != nil {
		writeProblem(w, r, err, to)
		return
	}
	isTrusted, err := p.checkAccess(r, route, to.port)
	if err != nil {
		writeProblem(w, r, err, to)
		return
	}
	release, err := p.takeSlots(route, isTrusted)
	if err != nil {
		writeProblem(w, r, err, to)
		return
	}
	defer release()
	out, err := outgoing(r, to)
	if err != nil {
		problem{Code: http.StatusBadRequest, Message: err.Error(), SandboxID: to.id}.write(w)
		return
	}
	if isInit(out, to.port) {
		writeProblem(w, r, errInit, to)
		return
	}
	if to.form == byHost {
		w = sandboxproxy.HostOnlyCookies(w)
	} else {
		w = sandboxproxy.IsolateResponse(w)
	}
	w.Header().Add("Vary", headerSandboxID+", "+headerSandboxPort)
	if to.form == byHeaders {
		w = sandboxproxy.UncachedResponse(w)
	}
	if route.Private && to.port != RuntimePort && isPreflight(r) {
		out.Header, w = preflightHeaders(out.Header), &preflightWriter{ResponseWriter: w}
		out.URL.RawQuery = ""
	}
	// What needs no token must not resume a private sandbox.
	if err := p.send(w, out, route, to, route.AutoResume && isTrusted); err != nil {
		writeProblem(w, r, err, to)
	}
}

// takeSlots takes the slots of a request: one of its team, and one of its sandbox. Requests that are not
// trusted have slots of their own, so that they keep no others out, and are few.
func (p *Proxy) takeSlots(route routes.Route, isTrusted bool) (release func(), err error) {
	team, sandbox := route.Namespace, route.ID
	leaveUntrusted := func() {}
	if !isTrusted {
		leave, ok := p.untrusted.Take(team)
		if !ok {
			return nil, fmt.Errorf("%w of this team without a token", errBusy)
		}
		leaveUntrusted = leave
		team, sandbox = team+" without a token", sandbox+" without a token"
	}
	leaveTeam, ok := p.teams.Take(team)
	if !ok {
		leaveUntrusted()
		return nil, fmt.Errorf("%w of this team", errBusy)
	}
	leaveSandbox, ok := p.sandboxes.Take(sandbox)
	if !ok {
		leaveTeam()
		leaveUntrusted()
		return nil, fmt.Errorf("%w to this sandbox", errBusy)
	}
	return func() { leaveSandbox(); leaveTeam(); leaveUntrusted() }, nil
}

// send forwards a request. It resumes the sandbox before, if that is paused and the request can resume it. An
// error means that there is no response yet.
func (p *Proxy) send(w http.ResponseWriter, r *http.Request, route routes.Route, to destination, canResume bool) error {
	body := withBody(r)
	defer body.end()
	delay := firstDelay
	for n := 1; ; n++ {
		var err error
		if route.State == routes.Paused && canResume {
			if route, err = p.wake(r.Context(), route); err != nil {
				return err
			}
		}
		target := sandboxproxy.Target{Namespace: route.Namespace, Name: route.Name, UID: route.UID, Claim: route.Claim, Port: to.port}
		// For any other state, ask the cluster: another replica may have resumed the sandbox, and
		// the table may not know yet. The forwarder alone might use a kept connection to a sandbox
		// that is not ready.
		if route.State != routes.Running {
			if _, err := p.options.Table.Resolve(r.Context(), target); err != nil {
				return err
			}
		}
		// Forward reports errors to ForwardError, which stores a retryable one in the try instead of
		// writing a response.
		try := &forwardTry{to: to, canRetry: canResume && n < maxTries, body: body}
		p.options.Forwarder.Forward(w, r.WithContext(context.WithValue(r.Context(), forwardTryKey, try)), target)
		if try.retryErr == nil {
			return nil
		}
		select {
		case <-p.options.Clock.After(delay):
			delay *= 2
		case <-r.Context().Done():
			return context.Cause(r.Context())
		}
		if route, err = p.options.Table.Find(r.Context(), to.id); err != nil {
			return err
		}
	}
}
