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

	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
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
			_, _ = w.Write([]byte(standAnswer)) // the caller reports it if the answer is missing
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
	context.AfterFunc(ctx, func() { _ = server.Close() }) // Serve tells
	fmt.Println(listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// stand runs such a process, and returns where it serves.
func (t *stage) stand(name, argument string) (p *program.Process, address string) {
	p = t.start(got(os.Executable()), name, argument)
	await(t.ctx, name+" serves", func(context.Context) bool {
		if !p.Alive() {
			t.Fatal(name, " has ended")
		}
		var whole bool
		address, whole = strings.CutSuffix(p.Stdout.String(), "\n")
		return whole
	})
	return p, address
}
