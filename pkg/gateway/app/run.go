// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/gateway/server"
)

// endpoint is a listener for requests, with TLS if tls is not nil.
type endpoint struct {
	listener net.Listener
	tls      *tls.Config
}

// Run serves until ctx is cancelled, and returns when all is stopped.
func Run(ctx context.Context, o *Options) error {
	log.SetLogger(klog.Background()) // of certwatcher, which logs certificates that it cannot read
	config, err := clientConfig(o)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client of the cluster: %w", err)
	}
	secrets := apikeys.NewSecrets(client.CoreV1(), o.KeysNamespace, clock.RealClock{})
	registerMetrics()
	gateway, err := server.New(server.Config{Options: o.Options, RESTConfig: config, Keys: apikeys.New(secrets), KeyWatcher: secrets})
	if err != nil {
		return err
	}
	certificates, tlsConfig, err := servingTLS(o)
	if err != nil {
		return err
	}
	endpoints, err := listenAll(ctx, o, tlsConfig)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	// Stop the caches, health and metrics only after all requests have ended.
	backgroundCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	serving, servingCtx := errgroup.WithContext(ctx)
	for _, e := range endpoints {
		serving.Go(func() error { return gateway.Serve(servingCtx, e.listener, e.tls) })
	}
	if certificates != nil {
		group.Go(func() error { return certificates.Start(backgroundCtx) })
	}
	group.Go(func() error {
		gateway.Watch(backgroundCtx)
		return nil
	})
	group.Go(func() error { return serveHealth(backgroundCtx, o.HealthProbeBindAddress, gateway.Ready) })
	if o.servesMetrics() {
		group.Go(func() error { return serveMetrics(backgroundCtx, o.MetricsBindAddress, tlsConfig, config) })
	}
	group.Go(func() error {
		defer stop()
		return serving.Wait()
	})
	return group.Wait()
}

// servingTLS returns the serving certificate, which has to be started, and the TLS configuration with it.
// Both are nil if the options need none.
func servingTLS(o *Options) (*certwatcher.CertWatcher, *tls.Config, error) {
	if !o.needsCertificate() {
		return nil, nil, nil
	}
	certificates, err := certwatcher.New(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--tls-cert-file and --tls-private-key-file: %w", err)
	}
	return certificates, &tls.Config{GetCertificate: certificates.GetCertificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}, nil
}

// listenAll listens on the ports of the options. After an error no listener is open.
func listenAll(ctx context.Context, o *Options, tlsConfig *tls.Config) ([]endpoint, error) {
	var endpoints []endpoint
	for _, port := range []struct {
		number int
		tls    *tls.Config
	}{{o.SecurePort, tlsConfig}, {o.InsecurePort, nil}} {
		if port.number == 0 {
			continue
		}
		listener, err := listen(ctx, o.BindAddress, port.number)
		if err != nil {
			for _, e := range endpoints {
				_ = e.listener.Close()
			}
			return nil, err
		}
		endpoints = append(endpoints, endpoint{listener, port.tls})
	}
	return endpoints, nil
}

// clientConfig returns the configuration of clients of the cluster. Its rate limit applies to each client:
// to the one for API keys, and to that of each team.
func clientConfig(o *Options) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reaching the cluster: %w", err)
	}
	config.QPS, config.Burst = o.KubeAPIQPS, o.KubeAPIBurst
	return config, nil
}

func listen(ctx context.Context, address net.IP, port int) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(address.String(), strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("serving: %w", err)
	}
	return listener, nil
}
