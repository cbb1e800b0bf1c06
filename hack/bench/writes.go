// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// quietFor is how long there may be no write until everything in the wake of something
// has been written. Leases are renewed all the time and do not count.
const quietFor = 3 * time.Second

// tallies count requests by what they do, "patch sandboxes/status" for example.
type tallies map[string]float64

func (t tallies) total() float64 {
	var sum float64
	for _, n := range t {
		sum += n
	}
	return sum
}

// MarshalJSON implements json.Marshaler.
func (t tallies) MarshalJSON() ([]byte, error) {
	numbers := make(map[string]number, len(t))
	for what, n := range t {
		numbers[what] = number(n)
	}
	return json.Marshal(numbers)
}

// writes are what was written since the servers started.
type writes struct {
	own, cluster tallies
	transactions float64
	// etcdPuts and etcdTxns are what our etcd counts, of whatever kind.
	etcdPuts, etcdTxns float64
}

// minus leaves out what is zero.
func (w writes) minus(other writes) writes {
	less := func(a, b tallies) tallies {
		left := maps.Clone(a)
		for what, n := range b {
			left[what] -= n
		}
		maps.DeleteFunc(left, func(_ string, n float64) bool { return n == 0 })
		return left
	}
	return writes{
		own: less(w.own, other.own), cluster: less(w.cluster, other.cluster),
		transactions: w.transactions - other.transactions,
		etcdPuts:     w.etcdPuts - other.etcdPuts, etcdTxns: w.etcdTxns - other.etcdTxns,
	}
}

// per divides everything by n.
func (w writes) per(n float64) writes {
	each := func(t tallies) tallies {
		divided := maps.Clone(t)
		for what := range divided {
			divided[what] /= n
		}
		return divided
	}
	return writes{
		own: each(w.own), cluster: each(w.cluster), transactions: w.transactions / n,
		etcdPuts: w.etcdPuts / n, etcdTxns: w.etcdTxns / n,
	}
}

// quiet returns what was written when there was no write for a while.
func (c *cluster) quiet(ctx context.Context) (writes, error) {
	last, err := c.writes(ctx)
	for since := time.Now(); err == nil && time.Since(since) < quietFor; {
		if err = sleep(ctx, quietFor/10); err != nil {
			break
		}
		var now writes
		if now, err = c.writes(ctx); err != nil {
			break
		}
		if !maps.Equal(now.own, last.own) || !maps.Equal(now.cluster, last.cluster) {
			last, since = now, time.Now()
		}
	}
	return last, err
}

func (c *cluster) writes(ctx context.Context) (writes, error) {
	w := writes{own: tallies{}, cluster: tallies{}}
	for _, process := range c.measured {
		families, err := scrape(ctx, process)
		if err != nil {
			return w, err
		}
		countWrites(families, w.own, func(group string) bool { return slices.Contains(ownGroups, group) })
		for _, metric := range families["sandlot_transaction_duration_seconds"].GetMetric() {
			w.transactions += float64(metric.GetHistogram().GetSampleCount())
		}
	}
	var err error
	if w.etcdPuts, w.etcdTxns, err = c.etcdCounts(ctx); err != nil {
		return w, err
	}
	families, err := scrape(ctx, c.kube.Discovery().RESTClient())
	countWrites(families, w.cluster, func(group string) bool { return !slices.Contains(ownGroups, group) })
	return w, err
}

// ownGroups are the groups that our servers serve from one store.
var ownGroups = []string{v1alpha1.GroupName, v1alpha1.AgentsGroup, v1alpha1.ExtensionsGroup}

func scrape(ctx context.Context, process rest.Interface) (map[string]*dto.MetricFamily, error) {
	text, err := process.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	return parseMetrics(bytes.NewReader(text))
}

func parseMetrics(text io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(text)
}

// verbs that write, as the metric calls them, and as people do.
var verbs = map[string]string{
	"POST": "create", "PUT": "update", "PATCH": "patch", "APPLY": "apply", "DELETE": "delete", "DELETECOLLECTION": "deletecollection",
}

// unrelated resources are written all the time, whatever clients do.
var unrelated = []string{"leases", "subjectaccessreviews", "tokenreviews", "selfsubjectreviews", "nodes"}

func countWrites(families map[string]*dto.MetricFamily, into tallies, counts func(group string) bool) {
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		verb, writes := verbs[labels["verb"]]
		resource := labels["resource"]
		if !writes || !counts(labels["group"]) || resource == "" || slices.Contains(unrelated, resource) {
			continue
		}
		if sub := labels["subresource"]; sub != "" {
			resource += "/" + sub
		}
		if labels["code"] == "409" {
			resource += " (conflict)"
		}
		into[verb+" "+resource] += metric.GetCounter().GetValue()
	}
}
