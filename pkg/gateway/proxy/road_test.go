// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/gateway/proxy"
	"github.com/sandlot-io/sandlot/pkg/road"
)

type standIn struct {
	resolve road.Resolve
	lock    sync.Mutex
	ways    map[road.Target]*http.Transport
}

func newRoad(t testing.TB, resolve road.Resolve) proxy.Road {
	s := &standIn{resolve: resolve, ways: map[road.Target]*http.Transport{}}
	t.Cleanup(func() {
		for _, way := range s.ways {
			way.CloseIdleConnections()
		}
	})
	return s
}

func (s *standIn) Forward(w http.ResponseWriter, r *http.Request, target road.Target) {
	s.lock.Lock()
	way := s.ways[target]
	if way == nil {
		way = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			ip, err := s.resolve(ctx, target)
			if err != nil {
				return nil, err
			}
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(ip.String(), fmt.Sprint(target.Port)))
		}}
		s.ways[target] = way
	}
	s.lock.Unlock()
	(&httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.Host = "http", "sandbox", pr.In.Host
		},
		Transport: way, ErrorHandler: proxy.RoadError, FlushInterval: -1,
	}).ServeHTTP(w, r)
}
