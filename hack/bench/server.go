// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

const (
	startTimeout   = 2 * time.Minute
	requestTimeout = time.Minute
)

// server is a running "sandlot up", or what serves in a cluster.
type server struct {
	// clients have a connection each.
	clients []versioned.Interface
	// measured are connections to the processes whose metrics count.
	measured []rest.Interface
	process  *program.Process
}

// program runs a program from the folder of the measured one, until the case ends.
func (t *stage) program(name string, args ...string) *program.Process {
	return t.start(filepath.Join(filepath.Dir(t.settings.program), name), args...)
}

func (t *stage) start(path string, args ...string) *program.Process {
	p := program.Run(t, filepath.Dir(path), filepath.Base(path), args...)
	t.Cleanup(func() {
		if p.Alive() && !t.failed {
			p.Stop(t)
		}
	})
	return p
}

// server runs the program on dir, with more arguments where there are any, and returns when
// it is ready.
func (t *stage) server(dir string, connections int, more ...string) *server {
	p := t.start(t.settings.program, append([]string{"up", "--data-dir", dir, "--secure-port", "0"}, more...)...)
	select {
	case <-p.Stdout.Seen("ready"):
	case <-p.Exited:
		t.Fatal(p.Name, " has ended before it was ready")
	case <-time.After(startTimeout):
		t.Fatal(p.Name, " is not ready")
	case <-t.ctx.Done():
		check(t.ctx.Err())
	}
	s := &server{process: p, clients: connect(filepath.Join(dir, "kubeconfig"), connections)}
	s.measured = []rest.Interface{s.raw(0)}
	return s
}

// connect returns clients with one HTTP/2 connection each and no limit of their
// rate.
func connect(kubeconfig string, connections int) []versioned.Interface {
	return newClients(got(clientcmd.BuildConfigFromFlags("", kubeconfig)), connections)
}

func newClients(config *rest.Config, connections int) (clients []versioned.Interface) {
	for range connections {
		config := rest.CopyConfig(config)
		config.QPS = -1
		config.Timeout = requestTimeout
		// client-go shares a connection between equal configurations; a dialer of its
		// own makes each unequal.
		config.Dial = new(net.Dialer).DialContext
		config.Wrap(client.ReadAccessTokens)
		clients = append(clients, got(versioned.NewForConfig(config)))
	}
	return clients
}

// client returns the client that number i of many uses.
func (s *server) client(i int) versioned.Interface { return s.clients[i%len(s.clients)] }

func (s *server) raw(i int) rest.Interface { return s.client(i).Discovery().RESTClient() }

// processCPU is the processor time, in ms, that a process has used, or 0 where the system
// does not tell.
func processCPU(p *program.Process) float64 {
	proc, err := procfs.NewProc(p.Pid())
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	check(err)
	return 1000 * got(proc.Stat()).CPUTime()
}

// counts are what servers have done since they started, by name.
type counts map[string]float64

const (
	// created counts sandboxes made through the API, and written all requests that change
	// sandboxes and sets. What claims write is in neither.
	created, written = "created", "written"
	// patches counts strategic merge patches on pod templates.
	patches = "patches"
	// cpuTime is in ms.
	cpuTime = "cpu"
	// transactions are those that bind claims.
	bindings = "transactions"
	// own and others begin the names of requests that write, to our store and to that of
	// kube-apiserver: "own patch sandboxes/status".
	own, others = "own ", "cluster "
)

// plus is the sum of both, with what is left of zeros.
func (c counts) plus(other counts) counts {
	sum := counts{}
	maps.Copy(sum, c)
	for what, n := range other {
		sum[what] += n
	}
	maps.DeleteFunc(sum, func(_ string, n float64) bool { return n == 0 })
	return sum
}

func (c counts) times(factor float64) counts {
	all := counts{}
	for what, n := range c {
		all[what] = n * factor
	}
	return all
}

func (c counts) minus(other counts) counts { return c.plus(other.times(-1)) }

// named are the counts whose names begin in one way, without that.
func (c counts) named(prefix string) counts {
	all := counts{}
	for what, n := range c {
		if name, ok := strings.CutPrefix(what, prefix); ok {
			all[name] = n
		}
	}
	return all
}

func (c counts) total() (sum float64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// counts asks all measured processes.
func (s *server) counts(ctx context.Context) counts {
	c := counts{}
	for _, process := range s.measured {
		scrape(ctx, process).count(c, own)
	}
	return c
}

// cpu is the processor time that the server has used, in ms.
func (s *server) cpu(ctx context.Context) float64 { return s.counts(ctx)[cpuTime] }

// available is how many sandboxes of a pool the server has to hand out.
func (s *server) available(ctx context.Context, p pool) int {
	return scrape(ctx, s.measured[0]).available(p)
}

// idle waits until the server has done what its start set off: less than a tenth
// of a processor's time in half a second.
func (s *server) idle(ctx context.Context) {
	for before, now := math.Inf(-1), s.cpu(ctx); now-before >= 50; before, now = now, s.cpu(ctx) {
		check(sleep(ctx, 500*time.Millisecond))
	}
}

// metrics are those of a process by name.
type metrics map[string]*dto.MetricFamily

func scrape(ctx context.Context, process rest.Interface) metrics {
	return parse(bytes.NewReader(got(process.Get().AbsPath("/metrics").DoRaw(ctx))))
}

func parse(text io.Reader) metrics {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return got(parser.TextToMetricFamilies(text))
}

// each calls do for each time series of a metric.
func (m metrics) each(name string, do func(labels map[string]string, value float64)) {
	for _, metric := range m[name].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		do(labels, metric.GetCounter().GetValue()+metric.GetGauge().GetValue()+metric.GetUntyped().GetValue()+float64(metric.GetHistogram().GetSampleCount()))
	}
}

func (m metrics) sum(name string) (sum float64) {
	m.each(name, func(_ map[string]string, value float64) { sum += value })
	return sum
}

// available is 0 of a pool that the metrics do not name.
func (m metrics) available(p pool) (available int) {
	m.each("sandlot_pool_sandboxes", func(labels map[string]string, value float64) {
		if labels["sandboxset_namespace"] == p.namespace && labels["sandboxset"] == p.name() && labels["state"] == "available" {
			available = int(value)
		}
	})
	return available
}

// verbs that write, as the metric calls them, and as people do.
var verbs = map[string]string{
	"POST": "create", "PUT": "update", "PATCH": "patch", "APPLY": "apply", "DELETE": "delete", "DELETECOLLECTION": "deletecollection",
}

// unrelated resources are written all the time, whatever clients do.
var unrelated = []string{"leases", "subjectaccessreviews", "tokenreviews", "selfsubjectreviews", "nodes"}

// ownGroups are the groups that our servers serve from one store.
var ownGroups = []string{v1alpha1.GroupName, v1alpha1.AgentsGroup, v1alpha1.ExtensionsGroup}

// count adds what a process tells. Its requests that write are named with a prefix: those of
// our groups with own, and the rest with others.
func (m metrics) count(c counts, prefix string) {
	c[cpuTime] += 1000 * m.sum("process_cpu_seconds_total")
	c[patches] += m.sum("sandlot_template_patches_total")
	c[bindings] += m.sum("sandlot_transaction_duration_seconds")
	m.each("apiserver_request_total", func(labels map[string]string, value float64) {
		verb, resource := verbs[labels["verb"]], labels["resource"]
		if verb == "" || resource == "" || slices.Contains(unrelated, resource) || slices.Contains(ownGroups, labels["group"]) != (prefix == own) {
			return
		}
		if prefix == own && (resource == "sandboxes" || resource == "sandboxsets") && verb != "deletecollection" {
			c[written] += value
			if resource == "sandboxes" && verb == "create" && labels["code"] == "201" {
				c[created] += value
			}
		}
		if sub := labels["subresource"]; sub != "" {
			resource += "/" + sub
		}
		if labels["code"] == "409" {
			resource += " (conflict)"
		}
		c[fmt.Sprint(prefix, verb, " ", resource)] += value
	})
}
