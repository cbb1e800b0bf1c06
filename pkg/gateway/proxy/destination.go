// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// Headers by which clients name a sandbox, and show what they may do.
const (
	headerSandboxID    = "E2b-Sandbox-Id"
	headerSandboxPort  = "E2b-Sandbox-Port"
	headerTrafficToken = "E2b-Traffic-Access-Token"
	headerAccessToken  = v1alpha1.RuntimeTokenHeader
	headerAPIKey       = "X-Api-Key"
)

// form is the way in which a request names its sandbox.
type form int

const (
	byHost form = iota + 1
	byHeaders
	byPath
)

// destination is where a request wants to go.
type destination struct {
	form form
	id   string
	port int
	// rest is the escaped path without the part that names the sandbox, if that is a part
	// of the path.
	rest string
}

// Match reports whether a request is for a sandbox and not for the API, also if it is invalid.
// Headers and the name of the host decide. Of the other requests, those whose path begins with
// /kruise/ are for a sandbox, except /kruise/api.
func (p *Proxy) Match(r *http.Request) bool {
	if hasSandboxHeaders(r) {
		return true
	}
	if _, _, ok := p.splitHost(r.Host); ok {
		return true
	}
	_, _, _, ok := splitPath(r.URL)
	return ok
}

// destinationOf says where a request wants to go. The error is for the client.
func (p *Proxy) destinationOf(r *http.Request) (destination, error) {
	if err := checkAmbiguous(r); err != nil {
		return destination{}, err
	}
	pathID, pathPort, rest, inPath := splitPath(r.URL)
	hostID, hostPort, inHost := p.splitHost(r.Host)
	var to destination
	var port string
	switch {
	case inHost:
		to, port = destination{form: byHost, id: hostID}, hostPort
	case inPath:
		to, port = destination{form: byPath, id: pathID, rest: rest}, pathPort
	}
	if hasSandboxHeaders(r) {
		id, headerPort := r.Header.Get(headerSandboxID), r.Header.Get(headerSandboxPort)
		switch {
		case id == "" || headerPort == "":
			return destination{}, fmt.Errorf("headers %s and %s go together: send both or none", headerSandboxID, headerSandboxPort)
		case to.form == 0:
			to, port = destination{form: byHeaders, id: id}, headerPort
		case to.id != id || port != headerPort:
			// A cache would take what the sandbox of the headers answers for that of the URL.
			return destination{}, fmt.Errorf("headers %s and %s name another sandbox or port than the URL", headerSandboxID, headerSandboxPort)
		}
	}
	if to.form == 0 {
		return destination{}, fmt.Errorf("the request names no sandbox")
	}
	return validated(to, port)
}

// hasSandboxHeaders reports whether a request names a sandbox by headers, which the SDK sends with
// whatever URL it was given.
func hasSandboxHeaders(r *http.Request) bool {
	return len(r.Header.Values(headerSandboxID)) > 0 || len(r.Header.Values(headerSandboxPort)) > 0
}

// checkAmbiguous returns an error for requests that different programs on the way could understand in
// different ways.
func checkAmbiguous(r *http.Request) error {
	for _, name := range []string{headerSandboxID, headerSandboxPort, headerTrafficToken} {
		if len(r.Header.Values(name)) > 1 {
			return fmt.Errorf("header %s comes more than once", name)
		}
	}
	switch {
	case r.Method == http.MethodConnect:
		return fmt.Errorf("method CONNECT leads nowhere: send requests, or upgrade to a WebSocket")
	case r.URL.User != nil, r.URL.Opaque != "":
		return fmt.Errorf("the target of the request is not a plain path")
	case r.URL.Scheme != "" && r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return fmt.Errorf("the target of the request has the scheme %q, not http or https", r.URL.Scheme)
	case len(r.Header.Values("Host")) > 0:
		return fmt.Errorf("the host is named more than once")
	}
	return nil
}

// validated returns a destination with its port, if both its id and its port are valid.
func validated(d destination, port string) (destination, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return destination{}, fmt.Errorf("%.10q is no port: give a number from 1 to 65535, without leading zeros", port)
	}
	if _, _, ok := mapping.ParseSandboxID(d.id); !ok {
		return destination{}, fmt.Errorf("%.80q is no id of a sandbox", d.id)
	}
	d.port = int(n)
	return d, nil
}
