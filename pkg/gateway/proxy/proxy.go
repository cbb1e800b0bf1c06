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

// maxAttempts is how often a request is sent on its way: the table may say for a moment that
// a sandbox runs that has been paused just now, and is to be resumed.
const maxAttempts = 6

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to, err := p.destinationOf(r)
	if err != nil {
		problem{Code: http.StatusBadRequest, Message: err.Error()}.write(w)
		return
	}
	route, err := p.options.Table.Find(r.Context(), to.id)
	if err != nil {
		answer(w, r, err, to)
		return
	}
	release, err := p.enter(route)
	if err != nil {
		answer(w, r, err, to)
		return
	}
	defer release()
	if err := p.admit(r, route, to.port); err != nil {
		answer(w, r, err, to)
		return
	}
	out, err := outgoing(r, to)
	if err != nil {
		problem{Code: http.StatusBadRequest, Message: err.Error(), SandboxID: to.id}.write(w)
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
		out.Header, w = asked(out.Header), &bare{ResponseWriter: w}
		out.URL.RawQuery = ""
	}
	if err := p.send(w, out, route, to); err != nil {
		answer(w, r, err, to)
	}
}

// enter takes the places of a request.
func (p *Proxy) enter(route routes.Route) (release func(), err error) {
	leaveTeam, ok := p.teams.Take(route.Namespace)
	if !ok {
		return nil, fmt.Errorf("%w of this team", errBusy)
	}
	leaveSandbox, ok := p.sandboxes.Take(route.ID)
	if !ok {
		leaveTeam()
		return nil, fmt.Errorf("%w to this sandbox", errBusy)
	}
	return func() { leaveSandbox(); leaveTeam() }, nil
}

// send forwards a request, and wakes its sandbox before if need be. An error means that
// nothing has been answered yet.
func (p *Proxy) send(w http.ResponseWriter, r *http.Request, route routes.Route, to destination) error {
	// Who has no token does not wake a private sandbox, and anybody can make up a preflight.
	wakes := route.AutoResume && (!route.Private || !isPreflight(r))
	body := withBody(r)
	defer body.end()
	pause := firstLook
	for n := 1; ; n++ {
		var err error
		if route.State == routes.Paused && wakes {
			if route, err = p.wake(r.Context(), route); err != nil {
				return err
			}
		}
		target := sandboxproxy.Target{Namespace: route.Namespace, Name: route.Name, UID: route.UID, Claim: route.Claim, Port: to.port}
		// Of any other state the cluster is asked for what is true now: another replica may
		// have resumed the sandbox, and our table not know of it yet. The forwarder alone would
		// take connections that are kept, to a pod that is on its way out.
		if route.State != routes.Running {
			if _, err := p.options.Table.Resolve(r.Context(), target); err != nil {
				return err
			}
		}
		a := &attempt{to: to, again: wakes && n < maxAttempts, body: body}
		p.options.Forwarder.Forward(w, r.WithContext(context.WithValue(r.Context(), attemptKey, a)), target)
		if a.failed == nil {
			return nil
		}
		select {
		case <-p.options.Clock.After(pause):
			pause *= 2
		case <-r.Context().Done():
			return context.Cause(r.Context())
		}
		if route, err = p.options.Table.Find(r.Context(), to.id); err != nil {
			return err
		}
	}
}
