// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sandlot-io/sandlot/pkg/client"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
)

const (
	startTimeout   = 2 * time.Minute
	stopTimeout    = 30 * time.Second
	requestTimeout = time.Minute
)

// server is a running "sandlot up".
type server struct {
	// clients have a connection each.
	clients []versioned.Interface
	// measured are connections to the processes whose metrics count.
	measured []rest.Interface
	*process // nil for a control plane, whose processes are its own
}

// startServer runs the program on dir, with more arguments where there are any, and
// returns when it is ready. The server lives until ctx is done or it is closed.
func startServer(ctx context.Context, program, dir string, connections int, more ...string) (*server, error) {
	kubeconfig := filepath.Join(dir, "kubeconfig")
	args := []string{"up", "--data-dir", dir, "--kubeconfig", kubeconfig, "--secure-port", "0"}
	ready := make(chan struct{})
	p, err := startProcess(ctx, func(line string) {
		if line == "ready" {
			close(ready)
		}
	}, program, append(args, more...)...)
	if err != nil {
		return nil, err
	}
	s := &server{process: p}
	if err := s.await(ctx, ready); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if s.clients, err = connect(kubeconfig, connections); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.measured = []rest.Interface{s.clients[0].Discovery().RESTClient()}
	return s, nil
}

// connect returns clients with one HTTP/2 connection each and no limit of their
// rate.
func connect(kubeconfig string, connections int) ([]versioned.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	return newClients(config, connections)
}

func newClients(config *rest.Config, connections int) ([]versioned.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Timeout = requestTimeout
	var clients []versioned.Interface
	for range connections {
		config := rest.CopyConfig(config)
		// client-go shares a connection between equal configurations; a dialer of its
		// own makes each unequal.
		config.Dial = new(net.Dialer).DialContext
		config.Wrap(client.ReadAccessTokens)
		made, err := versioned.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("making a client: %w", err)
		}
		clients = append(clients, made)
	}
	return clients, nil
}

// client returns the client that number i of many uses.
func (s *server) client(i int) versioned.Interface { return s.clients[i%len(s.clients)] }

// get reads a path that is not an object.
func (s *server) get(ctx context.Context, path string, params map[string]string) ([]byte, error) {
	request := s.clients[0].Discovery().RESTClient().Get().AbsPath(path)
	for name, value := range params {
		request.Param(name, value)
	}
	return request.DoRaw(ctx)
}

// counters are what the server has done since it started.
type counters struct {
	// created counts sandboxes made through the API, and writes all requests that
	// change sandboxes and sets. What claims write is in neither.
	created, writes float64
	// patches counts strategic merge patches on pod templates.
	patches float64
	cpu     time.Duration
}

func (c counters) plus(other counters) counters {
	return counters{
		created: c.created + other.created, writes: c.writes + other.writes,
		patches: c.patches + other.patches, cpu: c.cpu + other.cpu,
	}
}

func (c counters) minus(other counters) counters {
	return counters{
		created: c.created - other.created, writes: c.writes - other.writes,
		patches: c.patches - other.patches, cpu: c.cpu - other.cpu,
	}
}

func (s *server) counters(ctx context.Context) (counters, error) {
	var all counters
	for _, process := range s.measured {
		text, err := metricsOf(ctx, process)
		if err != nil {
			return counters{}, err
		}
		c, err := parseCounters(text)
		if err != nil {
			return counters{}, err
		}
		all = all.plus(c)
	}
	return all, nil
}

func metricsOf(ctx context.Context, process rest.Interface) (string, error) {
	text, err := process.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("reading metrics: %w", err)
	}
	return string(text), nil
}

// available is how many sandboxes of a pool the server has to hand out.
func (s *server) available(ctx context.Context, p pool) (int, error) {
	text, err := metricsOf(ctx, s.measured[0])
	if err != nil {
		return 0, err
	}
	return parseAvailable(text, p)
}

// parseAvailable returns 0 of a pool that the metrics do not name.
func parseAvailable(metrics string, p pool) (int, error) {
	label := func(name, value string) string { return name + `="` + value + `"` }
	for line := range strings.Lines(metrics) {
		name, text, ok := cutLast(strings.TrimSpace(line), " ")
		if !ok || !strings.HasPrefix(name, "sandlot_pool_sandboxes{") ||
			!strings.Contains(name, label("sandboxset_namespace", p.namespace)) ||
			!strings.Contains(name, label("sandboxset", p.name())) || !strings.Contains(name, label("state", "available")) {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		return int(value), nil
	}
	return 0, nil
}

// cpu is the processor time that the server has used.
func (s *server) cpu(ctx context.Context) (time.Duration, error) {
	c, err := s.counters(ctx)
	return c.cpu, err
}

func parseCounters(metrics string) (counters, error) {
	var c counters
	for line := range strings.Lines(metrics) {
		name, text, ok := cutLast(strings.TrimSpace(line), " ")
		requests := strings.HasPrefix(name, "apiserver_request_total{")
		if !ok || !requests && name != "process_cpu_seconds_total" && name != "sandlot_template_patches_total" {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return counters{}, fmt.Errorf("metric %s: %w", name, err)
		}
		switch name {
		case "process_cpu_seconds_total":
			c.cpu = time.Duration(value * float64(time.Second))
			continue
		case "sandlot_template_patches_total":
			c.patches = value
			continue
		}
		label := func(name, value string) bool { return strings.Contains(line, name+`="`+value+`"`) }
		if !label("resource", "sandboxes") && !label("resource", "sandboxsets") {
			continue
		}
		switch {
		case label("verb", "POST"):
			c.writes += value
			if label("resource", "sandboxes") && label("code", "201") {
				c.created += value
			}
		case label("verb", "PUT"), label("verb", "PATCH"), label("verb", "APPLY"), label("verb", "DELETE"):
			c.writes += value
		}
	}
	return c, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// idle waits until the server has done what its start set off: less than a tenth
// of a processor's time in half a second. Where a process does not know its time,
// the first look suffices.
func (s *server) idle(ctx context.Context) error {
	const interval, limit = 500 * time.Millisecond, 50 * time.Millisecond
	for before := (counters{cpu: -time.Hour}); ; {
		now, err := s.counters(ctx)
		if err != nil {
			return err
		}
		if now.cpu-before.cpu < limit {
			return nil
		}
		before = now
		if err := sleep(ctx, interval); err != nil {
			return err
		}
	}
}
