// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/localpki"
	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// Server is an API server in the process of a test.
type Server struct {
	// Config is for clients of the admin, without a limit on their rate. They use
	// one HTTP/2 connection; see NewConnection for more.
	Config *rest.Config
	// Client is a client with Config.
	Client versioned.Interface
	// EtcdServers are the endpoints of the server's etcd, for another Server on the
	// same data or for a look at it.
	EtcdServers []string
	// APIServer is the server itself.
	APIServer *apiserver.Server

	stop func()
}

// Option changes how Start runs a server.
type Option func(*settings)

type settings struct {
	etcdServers []string
	options     []func(*options.Options)
	configs     []func(*apiserver.Config)
	unready     bool
	openAPI     bool
}

// WithEtcd runs the server on an etcd that is there already, such as that of
// another Server.
func WithEtcd(servers []string) Option {
	return func(s *settings) { s.etcdServers = servers }
}

// WithOptions changes the options of the server.
func WithOptions(change func(*options.Options)) Option {
	return func(s *settings) { s.options = append(s.options, change) }
}

// WithConfig changes the configuration that comes from the options, for example
// to add admission.
func WithConfig(change func(*apiserver.Config)) Option {
	return func(s *settings) { s.configs = append(s.configs, change) }
}

// Unready lets Start return before the server is ready, for one that never will
// be.
func Unready() Option {
	return func(s *settings) { s.unready = true }
}

// WithOpenAPI lets the server serve its OpenAPI documents. It takes a large part of the start
// of a server to build them, and few tests read them.
func WithOpenAPI() Option {
	return func(s *settings) { s.openAPI = true }
}

// Start runs an API server without a cluster on a free port of this machine,
// on an etcd of its own unless told otherwise, and returns when it is ready.
// Both are stopped when the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s, pki := settle(t, opts)
	server, err := build(t, s, pki)
	if err != nil {
		t.Fatalf("building the API server: %v", err)
	}

	config := &rest.Config{
		Host:            server.URL(),
		TLSClientConfig: rest.TLSClientConfig{CAData: pki.CA, CertData: pki.Admin.Cert, KeyData: pki.Admin.Key},
		QPS:             -1,
	}
	connection, err := rest.TransportFor(config)
	if err != nil {
		t.Fatalf("making a connection: %v", err)
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatalf("making a client: %v", err)
	}

	ctx, cancel := context.WithCancel(context.Background()) // t.Context() ends before the clean-ups of clients
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	var stopped bool
	stop := func() {
		// A server that stops waits a second for a client to close a connection that is idle.
		utilnet.CloseIdleConnectionsFor(connection)
		cancel()
		if stopped {
			return
		}
		stopped = true
		if err := <-ended; err != nil {
			t.Errorf("the API server ended: %v", err)
		}
	}
	t.Cleanup(stop)
	started := &Server{Config: config, Client: client, EtcdServers: s.etcdServers, APIServer: server, stop: stop}
	if !s.unready {
		started.waitReady(t)
	}
	return started
}

// Refusal returns why an API server that Start would run does not start; nil if it does.
func Refusal(t testing.TB, opts ...Option) error {
	t.Helper()
	s, pki := settle(t, opts)
	_, err := build(t, s, pki)
	return err
}

// settle applies options, and makes what the server needs.
func settle(t testing.TB, opts []Option) (*settings, *localpki.PKI) {
	t.Helper()
	s := &settings{}
	for _, opt := range opts {
		opt(s)
	}
	if s.etcdServers == nil {
		s.etcdServers = StartEtcd(t)
	}
	pki, err := localpki.Ensure(filepath.Join(t.TempDir(), "pki"), []string{"127.0.0.1"}, clock.RealClock{})
	if err != nil {
		t.Fatalf("making certificates: %v", err)
	}
	return s, pki
}

// StartEtcd runs an etcd on a temporary folder and returns its endpoints.
func StartEtcd(t testing.TB) []string {
	t.Helper()
	etcd, err := embeddedetcd.Start(context.Background(), t.TempDir())
	if err != nil {
		t.Fatalf("starting etcd: %v", err)
	}
	t.Cleanup(func() {
		if err := etcd.Close(); err != nil {
			t.Errorf("stopping etcd: %v", err)
		}
	})
	return etcd.Endpoints()
}

func build(t testing.TB, s *settings, pki *localpki.PKI) (*apiserver.Server, error) {
	o := options.NewOptions()
	o.Alone = true
	o.Etcd.StorageConfig.Transport.ServerList = s.etcdServers

	var err error
	if o.SecureServing.Listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	o.Authentication.ClientCert.CAContentProvider, err = dynamiccertificates.NewStaticCAContent("test-ca", pki.CA)
	if err != nil {
		return nil, err
	}
	o.SecureServing.ServerCert.GeneratedCert, err = dynamiccertificates.NewStaticCertKeyContent("test-serving", pki.Serving.Cert, pki.Serving.Key)
	if err != nil {
		return nil, err
	}
	for _, change := range s.options {
		change(o)
	}
	if err := o.Complete(); err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	config, err := o.Config()
	if err != nil {
		return nil, err
	}
	config.GenericConfig.SkipOpenAPIInstallation = !s.openAPI
	for _, change := range s.configs {
		change(config)
	}
	return config.Complete().New()
}

// Stop stops the server before the test ends, and waits for it. Its etcd goes
// on.
func (s *Server) Stop() { s.stop() }

// NewConnection returns a client with a connection of its own, as from another
// process.
func (s *Server) NewConnection(t testing.TB) versioned.Interface {
	t.Helper()
	config := rest.CopyConfig(s.Config)
	// client-go shares connections between equal configurations; a dialer of its
	// own makes this one unequal.
	config.Dial = new(net.Dialer).DialContext
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatalf("making a client: %v", err)
	}
	return client
}

func (s *Server) waitReady(t testing.TB) {
	t.Helper()
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatalf("making a client: %v", err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Config.Host+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the API server is not ready: %s", resp.Status)
		}
		return nil
	})
}
