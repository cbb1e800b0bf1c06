// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/simulated"
	"github.com/sandlot-io/sandlot/pkg/datadir"
	"github.com/sandlot-io/sandlot/pkg/localpki"
	"github.com/sandlot-io/sandlot/pkg/manager"
	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
)

const (
	// readyTimeout is how long the server may take to be ready. What it waits for
	// is on this machine; much data may have to be read.
	readyTimeout  = 2 * time.Minute
	readyInterval = 20 * time.Millisecond
)

// Run runs everything until ctx is cancelled, and returns when all of it is
// stopped. It prints what a user has to know to out; the line "ready" comes when
// the API answers.
func Run(ctx context.Context, o *Options, out io.Writer) (err error) {
	dir, err := datadir.Open(o.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()

	pki, err := localpki.Ensure(filepath.Join(dir.Path(), "pki"), hosts(o.BindAddress), clock.RealClock{})
	if err != nil {
		return err
	}
	program, err := check(o)
	if err != nil {
		return err
	}
	s := newStack(ctx)
	defer func() { err = errors.Join(err, s.stop()) }()

	endpoints, err := startEtcd(s, filepath.Join(dir.Path(), "etcd"))
	if errors.Is(err, context.Canceled) && s.run.Err() != nil {
		return nil // stopped before it began
	}
	if err != nil {
		return err
	}
	server, err := startServer(s, o, pki, endpoints)
	if err != nil {
		return err
	}
	url := server.URL()
	if err := pki.WriteKubeconfig(o.Kubeconfig, url); err != nil {
		return err
	}
	fmt.Fprintf(out, "data:       %s\n", dir.Path())
	fmt.Fprintf(out, "kubeconfig: %s\n", o.Kubeconfig)
	fmt.Fprintf(out, "server:     %s\n", url)
	processes, err := startProcesses(s, o, program, dir.Path(), out)
	if err != nil {
		return err
	}
	// The controllers need a server that answers. While they start, it fills its index.
	if err := waitFor(s.run, server, "/livez"); err != nil {
		return err
	}
	if err := startControllers(s, o, server, processes); err != nil {
		return err
	}
	if err := waitFor(s.run, server, "/readyz"); err != nil {
		return err
	}
	if err := startE2B(s, o, server, dir.Path(), out); err != nil {
		return err
	}
	if s.run.Err() == nil {
		fmt.Fprintln(out, "ready")
	}
	return s.wait()
}

// check finds what would fail later, before anything runs. It returns the program of agent-runtimes, if sandboxes are
// processes.
func check(o *Options) (program string, err error) {
	if err := localpki.CheckKubeconfig(o.Kubeconfig); err != nil {
		return "", err
	}
	return runtimeOf(o)
}

func startEtcd(s *stack, dir string) ([]string, error) {
	etcd, err := embeddedetcd.Start(s.run, dir)
	if err != nil {
		return nil, err
	}
	s.start("embedded etcd", func(ctx context.Context) error {
		select {
		case err := <-etcd.Failed():
			return errors.Join(err, etcd.Close())
		case <-ctx.Done():
			return etcd.Close()
		}
	})
	return etcd.Endpoints(), nil
}

func startServer(s *stack, o *Options, pki *localpki.PKI, etcd []string) (*apiserver.Server, error) {
	opts := options.NewOptions()
	opts.Alone = true
	opts.SyncWindow = o.SyncWindow
	opts.MaxWaitingCreates = o.MaxWaitingCreates
	opts.ClaimLimits = o.ClaimLimits
	opts.Runtimes = o.Runtimes
	opts.Etcd.StorageConfig.Transport.ServerList = etcd
	opts.SecureServing.BindAddress = o.BindAddress
	opts.SecureServing.BindPort = o.SecurePort

	var err error
	if o.SecurePort == 0 {
		address := net.JoinHostPort(o.BindAddress.String(), "0")
		if opts.SecureServing.Listener, err = new(net.ListenConfig).Listen(s.run, "tcp", address); err != nil {
			return nil, fmt.Errorf("serving: %w", err)
		}
	}
	opts.Authentication.ClientCert.CAContentProvider, err = dynamiccertificates.NewStaticCAContent("sandlot-ca", pki.CA)
	if err != nil {
		return nil, fmt.Errorf("CA: %w", err)
	}
	opts.SecureServing.ServerCert.GeneratedCert, err = dynamiccertificates.NewStaticCertKeyContent("sandlot-serving", pki.Serving.Cert, pki.Serving.Key)
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	if err := opts.Complete(); err != nil {
		return nil, err
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	config, err := opts.Config()
	if err != nil {
		return nil, err
	}
	config.ExtraConfig.EmbeddedEtcd = true
	server, err := config.Complete().New()
	if err != nil {
		return nil, err
	}
	serveMetrics(server)
	connection, err := rest.TransportFor(server.LoopbackClientConfig())
	if err != nil {
		return nil, fmt.Errorf("client of the server: %w", err)
	}
	// A server that stops gives idle connections a second, those of the parts above it too.
	err = server.GenericAPIServer.AddPreShutdownHook("idle-connections", func() error {
		utilnet.CloseIdleConnectionsFor(connection)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.start("API server", server.Run)
	return server, nil
}

func startControllers(s *stack, o *Options, server *apiserver.Server, processes simulated.Processes) error {
	opts := manager.Options{ListerWatcher: server.ListerWatcher}
	opts.Simulate, opts.SimulatedStartDelay, opts.SimulatedProcesses = true, o.SimulatedStartDelay, processes
	mgr, err := manager.New(finishing(server.LoopbackClientConfig()), opts)
	if err != nil {
		return fmt.Errorf("controllers: %w", err)
	}
	s.start("controllers", mgr.Start)
	return nil
}

// waitFor returns nil when a health check of the server succeeds, and also when ctx is
// cancelled before.
func waitFor(ctx context.Context, server *apiserver.Server, path string) error {
	client, err := discovery.NewDiscoveryClientForConfig(server.LoopbackClientConfig())
	if err != nil {
		return fmt.Errorf("client of the server: %w", err)
	}

	var last error
	err = wait.PollUntilContextTimeout(ctx, readyInterval, readyTimeout, true, func(ctx context.Context) (bool, error) {
		_, last = client.RESTClient().Get().AbsPath(path).Param("verbose", "").DoRaw(ctx)
		return last == nil, nil
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("the API server is not ready after %s: %s: %w", readyTimeout, path, last)
	}
	return nil
}

// hosts are the names and addresses by which clients may reach the server.
func hosts(bind net.IP) []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if !bind.IsUnspecified() {
		if !slices.Contains(hosts, bind.String()) {
			hosts = append(hosts, bind.String())
		}
		return hosts
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return hosts
	}
	for _, address := range addresses {
		if ipnet, ok := address.(*net.IPNet); ok && !ipnet.IP.IsLoopback() && !ipnet.IP.IsLinkLocalUnicast() {
			hosts = append(hosts, ipnet.IP.String())
		}
	}
	return hosts
}
