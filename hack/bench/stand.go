// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/sandlot-io/sandlot/pkg/embeddedetcd"
)

// Things that a case needs beside the program that it measures, each a process of its own:
// this program, with the name of the thing and an argument. They print where they serve.
const (
	// standSandbox serves the port of a sandbox at an address.
	standSandbox = "serve-sandbox"
	// standProxy forwards to a URL.
	standProxy = "serve-proxy"
	// standEtcd serves an etcd on a folder.
	standEtcd = "serve-etcd"
)

// standAnswer is what a sandbox answers, whatever it is asked.
var standAnswer = strings.Repeat("sandbox ", 32)

// runStand is one of these processes. It is none of them if served is false.
func runStand(ctx context.Context, args []string) (served bool, err error) {
	if len(args) != 2 {
		return false, nil
	}
	switch args[0] {
	case standSandbox:
		return true, serveStand(ctx, args[1], http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(standAnswer)))
			_, _ = w.Write([]byte(standAnswer)) // whoever asked says if it did not come
		}))
	case standProxy:
		target, err := url.Parse(args[1])
		if err != nil {
			return true, err
		}
		proxy := httputil.NewSingleHostReverseProxy(target)
		// The default keeps two connections, and would open one for nearly each request.
		proxy.Transport = &http.Transport{MaxIdleConnsPerHost: manyClients, DisableCompression: true}
		return true, serveStand(ctx, "127.0.0.1", proxy)
	case standEtcd:
		return true, serveEtcd(ctx, args[1])
	}
	return false, nil
}

func serveEtcd(ctx context.Context, dir string) error {
	etcd, err := embeddedetcd.Start(ctx, dir)
	if err != nil {
		return err
	}
	fmt.Println(etcd.Endpoints()[0])
	select {
	case err = <-etcd.Failed():
	case <-ctx.Done():
	}
	return errors.Join(err, etcd.Close())
}

func serveStand(ctx context.Context, ip string, handler http.Handler) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: requestTimeout}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	fmt.Println(listener.Addr())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	err = server.Close()
	if end := <-ended; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

// stand is such a process.
type stand struct {
	*process
	address string
}

func startStand(ctx context.Context, name, argument string) (*stand, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s, ready := &stand{}, make(chan struct{})
	s.process, err = startProcess(ctx, func(line string) {
		s.address = line
		close(ready)
	}, self, name, argument)
	if err != nil {
		return nil, err
	}
	if err := s.await(ctx, ready); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}
