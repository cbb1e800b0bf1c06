// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// Bounds of the calls.
const (
	// initAttempt is how long one attempt at /init may take.
	initAttempt = time.Second
	// mountTimeout is how long the mount of one volume may take.
	mountTimeout = 30 * time.Second
	// initCalls, backgroundCalls and mountCalls are how many run at a time, of all namespaces
	// together.
	initCalls       = 512
	backgroundCalls = 128
	mountCalls      = 256
	// maxHeaderBytes bounds the headers of an answer.
	maxHeaderBytes = 16 << 10
)

// initBackoff is 5 attempts with 200, 400, 800 and 1600 ms in between.
var initBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Steps: 5}

var (
	errNoCertificates  = errors.New("no certificates")
	errBadCertificates = errors.New("the certificates cannot be read")
)

// Options set up a Client.
type Options struct {
	// TLS returns the certificates for runtimes that speak TLS, as they are now: the CA
	// of the runtimes and a client certificate. nil is a client without any, which fails
	// to call these runtimes. The server name is set by the Client.
	TLS func() (*tls.Config, error)
	// AttemptTimeout is how long one attempt at /init may take; 1 s if 0.
	AttemptTimeout time.Duration
	// Calls is how many calls of /init run at a time, of all namespaces together; 512 if 0. Those
	// in the background do not count.
	Calls int
}

// Client calls runtimes. It is safe for concurrent use.
type Client struct {
	options Options
	http    *http.Client
	// inits are the places of calls of /init but those in the background.
	inits, background, mounts *fairness.Slots
}

// New returns a Client.
func New(o Options) *Client {
	o.AttemptTimeout = cmp.Or(o.AttemptTimeout, initAttempt)
	o.Calls = cmp.Or(o.Calls, initCalls)
	c := &Client{
		options: o, inits: fairness.NewSlots(o.Calls, o.Calls),
		background: fairness.NewSlots(backgroundCalls, backgroundCalls), mounts: fairness.NewSlots(mountCalls, mountCalls),
	}
	c.http = &http.Client{
		Transport: &http.Transport{
			Proxy: nil, // an environment's is no business of a pod address
			// One call or two a sandbox: a connection that is kept is a connection too many.
			DisableKeepAlives:      true,
			DialTLSContext:         c.dialTLS,
			MaxResponseHeaderBytes: maxHeaderBytes,
			DisableCompression:     true,
		},
		// A redirect leads away from the sandbox.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// dialTLS connects to an address under the name that all runtimes have.
func (c *Client) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	if c.options.TLS == nil {
		return nil, errNoCertificates
	}
	config, err := c.options.TLS()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadCertificates, err)
	}
	config = config.Clone()
	config.ServerName = ServerName
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	return (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
}

// do sends a request to a path of a runtime. The answer's status is 2xx; its body is the
// caller's to bound and close.
func (c *Client) do(req *http.Request) (*http.Response, *Error) {
	answer, err := c.http.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return nil, ofCall(req.Context(), req.URL.Host, err)
	}
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		_ = answer.Body.Close() // it is not read, so nothing is lost
		return nil, ofStatus(req.URL.Host, answer.StatusCode)
	}
	return answer, nil
}

// accessTokenHeader authenticates calls of a runtime that was initialized.
const accessTokenHeader = "X-Access-Token"
