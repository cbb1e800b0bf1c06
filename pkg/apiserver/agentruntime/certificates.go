// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// Certificates are those for agent-runtimes that speak TLS. Their files are read anew
// when they change.
type Certificates struct {
	ca     *dynamiccertificates.DynamicFileCAContent
	client *dynamiccertificates.DynamicCertKeyPairContent
}

// NewCertificates reads the files: the CA that has signed the certificates of runtimes,
// and a client certificate that they take.
func NewCertificates(caFile, certFile, keyFile string) (*Certificates, error) {
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("runtime-ca", caFile)
	if err != nil {
		return nil, fmt.Errorf("CA of agent-runtimes: %w", err)
	}
	client, err := dynamiccertificates.NewDynamicServingContentFromFiles("runtime-client", certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("client certificate for agent-runtimes: %w", err)
	}
	return &Certificates{ca: ca, client: client}, nil
}

// Run follows changes of the files until ctx is done.
func (c *Certificates) Run(ctx context.Context) {
	go c.client.Run(ctx, 1)
	c.ca.Run(ctx, 1)
}

// TLS returns the configuration of a client with the files as they were last read.
func (c *Certificates) TLS() (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.ca.CurrentCABundleContent()) {
		return nil, errors.New("there is no certificate in the CA file of agent-runtimes")
	}
	pair, err := tls.X509KeyPair(c.client.CurrentCertKeyContent())
	if err != nil {
		return nil, fmt.Errorf("client certificate for agent-runtimes: %w", err)
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
