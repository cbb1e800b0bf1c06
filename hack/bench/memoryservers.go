// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/localpki"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// residents are what the processes of an install take, and how many bytes of etcd's file
// are in use.
type residents struct {
	etcd, apiServer, controllers program.Memory
	stored                       int64
}

// measureMemory runs etcd, API server and controllers, each as a process of its own, on the
// data of a server, until they have come to rest with the pool in place, if there is one.
func (b *bench) measureMemory(ctx context.Context, dir string, p *pool) (all *residents, err error) {
	etcd, err := startStand(ctx, standEtcd, filepath.Join(dir, "etcd"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, etcd.close()) }()
	s, err := b.startAPIServer(ctx, dir, etcd.address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	controllers, err := startProcess(ctx, func(string) {}, b.beside("sandlot-controller-manager"),
		"--kubeconfig="+filepath.Join(dir, "kubeconfig"), "--simulate-sandboxes", "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, controllers.close()) }()
	if p != nil {
		// What they have is as of now once the status is of a spec of now.
		if err := s.patchSet(ctx, *p, map[string]any{"replicas": p.size + 1}); err != nil {
			return nil, err
		}
		if err := s.awaitStock(ctx, *p); err != nil {
			return nil, err
		}
	}
	if err := s.idle(ctx); err != nil {
		return nil, err
	}
	all = &residents{}
	for to, process := range map[*program.Memory]*process{&all.etcd: etcd.process, &all.apiServer: s.process, &all.controllers: controllers} {
		if *to, err = program.ReadMemory(process.pid); err != nil {
			return nil, err
		}
	}
	all.stored, err = inUse(ctx, etcd.address)
	return all, err
}

// beside is another program in the folder of the measured one.
func (o *settings) beside(program string) string {
	return filepath.Join(filepath.Dir(o.program), program)
}

// startAPIServer runs sandlot-apiserver without a cluster, with the certificates and the
// kubeconfig of dir.
func (b *bench) startAPIServer(ctx context.Context, dir, etcd string) (*server, error) {
	pki, err := localpki.Ensure(filepath.Join(dir, "pki"), []string{"127.0.0.1"}, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, "pki", name)
		err = errors.Join(err, os.WriteFile(path, content, 0o600))
		return path
	}
	ca, cert, key := file("client-ca", pki.CA), file("server-cert", pki.Serving.Cert), file("server-key", pki.Serving.Key)
	listener, listenErr := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err := errors.Join(err, listenErr); err != nil {
		return nil, err
	}
	address := listener.Addr().String()
	_, port, _ := strings.Cut(address, ":")
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := errors.Join(listener.Close(), pki.WriteKubeconfig(kubeconfig, "https://"+address)); err != nil {
		return nil, err
	}
	s := &server{}
	if s.clients, err = connect(kubeconfig, 1); err != nil {
		return nil, err
	}
	s.measured = []rest.Interface{s.clients[0].Discovery().RESTClient()}
	s.process, err = startProcess(ctx, func(string) {}, b.beside("sandlot-apiserver"),
		"--etcd-servers="+etcd, "--bind-address=127.0.0.1", "--secure-port="+port,
		"--client-ca-file="+ca, "--tls-cert-file="+cert, "--tls-private-key-file="+key)
	if err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	waiting, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	go func() {
		for waiting.Err() == nil {
			if _, err := s.get(waiting, "/readyz", nil); err == nil {
				close(ready)
				return
			}
			_ = sleep(waiting, poolInterval)
		}
	}()
	if err := s.await(ctx, ready); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// inUse is how many bytes of the file of an etcd are in use.
func inUse(ctx context.Context, endpoint string) (bytes int64, err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop(), DialTimeout: 10 * time.Second})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	status, err := client.Status(ctx, endpoint)
	if err != nil {
		return 0, fmt.Errorf("status of etcd: %w", err)
	}
	return status.DbSizeInUse, nil
}
