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

// door is where requests come in; with TLS if that is set.
type door struct {
	listener net.Listener
	tls      *tls.Config
}

// Run serves until ctx is cancelled, and returns when all is stopped.
func Run(ctx context.Context, o *Options) error {
	log.SetLogger(klog.Background()) // it reports certificates that cannot be read
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
	var doors []door
	defer func() {
		for _, d := range doors {
			_ = d.listener.Close() // those that were served are closed already
		}
	}()
	group, ctx := errgroup.WithContext(ctx)
	var certificates *certwatcher.CertWatcher
	var secure *tls.Config
	if o.needsCertificate() {
		if certificates, err = certwatcher.New(o.CertFile, o.KeyFile); err != nil {
			return fmt.Errorf("--tls-cert-file and --tls-private-key-file: %w", err)
		}
		secure = &tls.Config{GetCertificate: certificates.GetCertificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	}
	if o.SecurePort != 0 {
		listener, err := listen(ctx, o.BindAddress, o.SecurePort)
		if err != nil {
			return err
		}
		doors = append(doors, door{listener, secure})
	}
	if o.InsecurePort != 0 {
		listener, err := listen(ctx, o.BindAddress, o.InsecurePort)
		if err != nil {
			return err
		}
		doors = append(doors, door{listener, nil})
	}
	// What requests need is stopped after them.
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	serving, ends := errgroup.WithContext(ctx)
	for _, d := range doors {
		serving.Go(func() error { return gateway.Serve(ends, d.listener, d.tls) })
	}
	if certificates != nil {
		group.Go(func() error { return certificates.Start(below) })
	}
	group.Go(func() error {
		gateway.Run(below)
		return nil
	})
	group.Go(func() error { return serveHealth(below, o.HealthProbeBindAddress, gateway.Ready) })
	if o.servesMetrics() {
		group.Go(func() error { return serveMetrics(below, o.MetricsBindAddress, secure, config) })
	}
	group.Go(func() error {
		defer stop()
		return serving.Wait()
	})
	return group.Wait()
}

// clientConfig has the limit of each client: of the one for API keys, and of each team's.
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
