// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
)

// Ports of the contract.
const (
	defaultPort    = 49983
	defaultTLSPort = 49984
)

// options are the flags of serve and start.
type options struct {
	address       string
	port, tlsPort int
	cert, key, ca string
	// sameUser refuses connections of other users.
	sameUser bool
	// command is what is run beside the server.
	command []string
	// inBackground is set if the server was started by start.
	inBackground bool
}

func parse(name string, args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("sandlot-runtime "+name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.address, "address", "", "Address to listen on. Empty is all of them.")
	fs.IntVar(&o.port, "port", defaultPort, "Port of the HTTP server.")
	fs.IntVar(&o.tlsPort, "tls-port", defaultTLSPort, "Port of the HTTPS server, with --tls-cert-file.")
	fs.BoolVar(&o.sameUser, "same-user", false, "Refuse connections of programs that do not run on this machine as the user of this one. Needs an IPv4 --address.")
	fs.StringVar(&o.cert, "tls-cert-file", "", "Certificate of the HTTPS server, for agentruntime.sandbox.agents.kruise.io. With it, /init is served over TLS only.")
	fs.StringVar(&o.key, "tls-key-file", "", "Key of that certificate.")
	fs.StringVar(&o.ca, "tls-client-ca-file", "", "CA of the client certificates that the HTTPS server requires.")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.command = fs.Args()
	return o, o.check()
}

func (o options) check() error {
	given := 0
	for _, file := range []string{o.cert, o.key, o.ca} {
		if file != "" {
			given++
		}
	}
	if given != 0 && given != 3 {
		return errors.New("--tls-cert-file, --tls-key-file and --tls-client-ca-file are given together or not at all")
	}
	if ip, err := netip.ParseAddr(o.address); o.sameUser && (err != nil || !ip.Is4()) {
		return fmt.Errorf("--same-user needs an IPv4 --address, not %q", o.address)
	}
	for flag, port := range map[string]int{"--port": o.port, "--tls-port": o.tlsPort} {
		if port < 0 || port > 1<<16-1 {
			return fmt.Errorf("%s %d is no port", flag, port)
		}
	}
	return nil
}
