// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/sandlot-io/sandlot/pkg/store/snapshot"
)

// Source gives snapshots of a store.
type Source interface {
	// Snapshot returns the file of the store's data with its checksum at the end, and the
	// revision that it has at least if it is of the newest data, or 0 where that is not
	// known. A reader that ends early ends with an error.
	Snapshot(ctx context.Context) (data io.ReadCloser, atLeast int64, err error)
}

// APIServer is a Source: an API server with --serve-snapshots.
type APIServer struct {
	url       string
	tokenFile string
	client    *http.Client
}

var _ Source = (*APIServer)(nil)

// NewAPIServer returns the API server at an https URL, whose certificate is of a CA in caFile,
// for the user whose token is in tokenFile.
func NewAPIServer(server, caFile, tokenFile string) (*APIServer, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("--apiserver %q: want https://HOST", server)
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--ca-file %s: there is no certificate in it", caFile)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return &APIServer{
		url: strings.TrimSuffix(server, "/") + snapshot.Path, tokenFile: tokenFile,
		client: &http.Client{Transport: transport},
	}, nil
}

// Snapshot implements Source.
func (s *APIServer) Snapshot(ctx context.Context) (data io.ReadCloser, atLeast int64, err error) {
	token, err := os.ReadFile(s.tokenFile)
	if err != nil {
		return nil, 0, fmt.Errorf("--token-file: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := s.client.Do(request)
	if err != nil {
		return nil, 0, err
	}
	if response.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(response.Body, 1024))
		return nil, 0, errors.Join(fmt.Errorf("%s answers %s: %s", s.url, response.Status, strings.TrimSpace(string(text))), err, response.Body.Close())
	}
	revision := response.Header.Get(snapshot.RevisionHeader)
	if revision == "" { // a server of a version before it
		return response.Body, 0, nil
	}
	if atLeast, err = strconv.ParseInt(revision, 10, 64); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("%s answers with %s: %w", s.url, snapshot.RevisionHeader, err), response.Body.Close())
	}
	return response.Body, atLeast, nil
}
