// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/util/cert"
)

const (
	// serverName is what the Job's certificate is for, whatever address it is reached at.
	serverName   = "sandlot-restore"
	snapshotPath = "/snapshot"
)

// server gives the prepared snapshot to who knows the token. Certificate and token are made for
// it, and end with it.
type server struct {
	listener net.Listener
	token    string
	ca       []byte
	http     *http.Server
}

func newServer(address, file string) (*server, error) {
	chain, key, err := cert.GenerateSelfSignedCertKey(serverName, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	listener, err := tls.Listen("tcp", address, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13})
	if err != nil {
		return nil, err
	}
	s := &server{listener: listener, token: rand.Text(), ca: chain}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+snapshotPath, func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+s.token)) != 1 {
			http.Error(w, "another token is wanted", http.StatusUnauthorized)
			return
		}
		http.ServeFile(w, r, file)
	})
	s.http = &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14}
	return s, nil
}

// run serves until ctx is done.
func (s *server) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = s.http.Close() })() // nothing is in flight that is wanted
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the snapshot: %w", err)
	}
	return nil
}
