// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	gatewayRoute = "gateway/route"
	// offered is how many requests a second 64 clients make together where they are paced.
	offered = 2000
	// maxAdded is how many milliseconds more a routed request may take than a direct one,
	// and minRouted how many there may be a second by those of a plain proxy.
	maxAdded  = 1
	minRouted = 0.5
)

// routeFigures compare requests that go to a port of a sandbox directly, through a plain
// httputil.ReverseProxy, and through the gateway.
type routeFigures struct {
	// Paced requests come at Offered a second: what one takes is not the time that it waits
	// for others, as long as RoutedPacedPerS is as much.
	Offered         number `json:"offered_per_s"`
	RoutedPacedPerS number `json:"routed_paced_per_s"`
	DirectP50       number `json:"direct_p50_ms"`
	ProxyP50        number `json:"proxy_p50_ms"`
	RoutedP50       number `json:"routed_p50_ms"`
	RoutedP99       number `json:"routed_p99_ms"`
	// ProxyAdded and RoutedAdded are the medians over the rounds of the differences to
	// DirectP50.
	ProxyAdded  number `json:"proxy_added_ms"`
	RoutedAdded number `json:"routed_added_ms"`

	// Closed are those of clients that send the next request when one is answered.
	ClosedDirectPerS number `json:"closed_direct_per_s"`
	ClosedProxyPerS  number `json:"closed_proxy_per_s"`
	ClosedRoutedPerS number `json:"closed_routed_per_s"`
	ClosedDirectP50  number `json:"closed_direct_p50_ms"`
	ClosedProxyP50   number `json:"closed_proxy_p50_ms"`
	ClosedRoutedP50  number `json:"closed_routed_p50_ms"`
	// RoutedRateRatio is that of the gateway by that of the plain proxy.
	RoutedRateRatio number `json:"routed_rate_ratio"`
	// What a request costs the proxy, and what the gateway.
	ProxyCPU  number `json:"proxy_cpu_ms"`
	RoutedCPU number `json:"routed_cpu_ms"`
}

// runRoute compares requests of 64 clients with keep-alive to a port of a sandbox. The
// sandbox, the plain proxy and the gateway are a process each, HTTP without TLS, on the same
// processors as the clients, which are this process.
//
// 64 clients that send the next request as soon as one is answered keep both processors
// busy. The p50 is then the length of the queue by the rate, and says the same as the rate.
// So rates are compared in that way, and times where 64 clients send 2,000 requests a
// second together, whoever answers.
func (b *bench) runRoute(ctx context.Context, g *gateway) (r *result, err error) {
	t, err := g.team(ctx, pool{namespace: "bench-e2b-route", size: 1})
	if err != nil {
		return nil, err
	}
	id, address, err := t.routed(ctx)
	if err != nil {
		return nil, err
	}
	sandbox, err := startStand(ctx, standSandbox, address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sandbox.close()) }()
	plain, err := startStand(ctx, standProxy, "http://"+sandbox.address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plain.close()) }()
	_, port, err := net.SplitHostPort(sandbox.address)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: manyClients, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: requestTimeout}
	named := http.Header{"E2b-Sandbox-Id": {id}, "E2b-Sandbox-Port": {port}}
	arms := func(count int) []arm {
		direct := requests("direct", client, "http://"+sandbox.address, nil, count)
		proxy := requests("ReverseProxy", client, "http://"+plain.address, nil, count)
		routed := requests("gateway", client, g.url, named, count)
		proxy.cpu, routed.cpu = plain.cpu, g.cpu
		return []arm{direct, proxy, routed}
	}
	paced := arms(b.count * 2)
	for i := range paced {
		p := newPace(manyClients, offered)
		paced[i].before, paced[i].ready = p.begin, p.wait
	}
	atPace, err := compare(ctx, gatewayRoute+" paced", manyClients, b.rounds, paced)
	if err != nil {
		return nil, err
	}
	closed, err := compare(ctx, gatewayRoute, manyClients, b.rounds, arms(b.count*5))
	if err != nil {
		return nil, err
	}
	r = &result{Case: gatewayRoute, Clients: manyClients, routeFigures: figuresOfRoute(atPace, closed)}
	r.judge(atMost("routed_added_ms", r.RoutedAdded, maxAdded), atLeast("routed_rate_ratio", r.RoutedRateRatio, minRouted),
		// Else the times would be those of a queue.
		atLeast("routed_paced_per_s", r.RoutedPacedPerS, 0.95*offered))
	return r, nil
}

// figuresOfRoute are those of three arms each: direct, through the plain proxy, through the
// gateway.
func figuresOfRoute(paced, closed []series) *routeFigures {
	return &routeFigures{
		Offered: offered, RoutedPacedPerS: number(paced[2].rate()),
		DirectP50: number(paced[0].p50()), ProxyP50: number(paced[1].p50()),
		RoutedP50: number(paced[2].p50()), RoutedP99: number(paced[2].p99()),
		ProxyAdded:       number(difference(paced[1], paced[0], sample.p50)),
		RoutedAdded:      number(difference(paced[2], paced[0], sample.p50)),
		ClosedDirectPerS: number(closed[0].rate()), ClosedProxyPerS: number(closed[1].rate()), ClosedRoutedPerS: number(closed[2].rate()),
		ClosedDirectP50: number(closed[0].p50()), ClosedProxyP50: number(closed[1].p50()), ClosedRoutedP50: number(closed[2].p50()),
		RoutedRateRatio: number(ratio(closed[2], closed[1], sample.rate)),
		ProxyCPU:        number(closed[1].cpuEach()), RoutedCPU: number(closed[2].cpuEach()),
	}
}

// requests gets a URL count times a round.
func requests(name string, client *http.Client, url string, header http.Header, count int) arm {
	return arm{name: name, count: count, do: func(ctx context.Context, _ int) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		maps.Copy(request.Header, header)
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK || string(body) != standAnswer {
			return fmt.Errorf("GET %s was answered with %s %.200q, not by the sandbox", url, answer.Status, body)
		}
		return nil
	}}
}

// routed makes a sandbox through the gateway, and returns its id and its address.
func (t *team) routed(ctx context.Context) (id, address string, err error) {
	if id, err = t.create(ctx); err != nil {
		return "", "", err
	}
	list, err := t.gateway.clients[0].AgentsV1alpha1().Sandboxes(t.pool.namespace).
		List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelSandboxID + "=" + id})
	if err != nil {
		return "", "", err
	}
	if len(list.Items) != 1 {
		return "", "", fmt.Errorf("%d sandboxes have the id %s", len(list.Items), id)
	}
	address = list.Items[0].Status.PodInfo.PodIP
	if ip := net.ParseIP(address); ip == nil || !ip.IsLoopback() {
		return "", "", fmt.Errorf("the address %q of sandbox %s is not of this machine", address, id)
	}
	return id, address, nil
}
