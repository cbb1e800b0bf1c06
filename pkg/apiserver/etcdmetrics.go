// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/klog/v2"

	"k8s.io/apiserver/pkg/storage/storagebackend"
)

const (
	// EtcdMetricsPath is where the server serves the metrics of the members of etcd. They
	// are for who may get this non-resource URL, while etcd itself talks to our server
	// alone.
	EtcdMetricsPath = "/metrics/etcd"

	// etcdMetricsTimeout is how long a member has to answer.
	etcdMetricsTimeout = 5 * time.Second
	// etcdMetricsBytes is how long its answer may be. It is some 200 KB.
	etcdMetricsBytes = 4 << 20

	// etcdMemberLabel says whose a metric is, and etcdUpMetric who has answered.
	etcdMemberLabel = "member"
	etcdUpMetric    = "sandlot_etcd_member_up"
	// embeddedMember is what an etcd inside this process is called.
	embeddedMember = "embedded"
)

// etcdMetrics serves the metrics of all members of an etcd as one page, in which each
// has the label "member".
type etcdMetrics struct {
	client  *http.Client
	members []etcdMember
}

type etcdMember struct {
	name string // the first label of its host, which is the pod's, or else its address
	url  string // empty if it is inside this process
}

// addEtcdMetrics lets the server serve them.
func (c CompletedConfig) addEtcdMetrics(s *Server) error {
	transport, err := c.etcdTransport()
	if err != nil {
		return err
	}
	handler, err := newEtcdMetrics(transport)
	if err != nil {
		return err
	}
	s.GenericAPIServer.Handler.NonGoRestfulMux.Handle(EtcdMetricsPath, handler)
	return nil
}

func newEtcdMetrics(config storagebackend.TransportConfig) (*etcdMetrics, error) {
	tlsConfig, err := etcdTLS(config)
	if err != nil {
		return nil, err
	}
	m := &etcdMetrics{client: &http.Client{
		// etcd has one address for each member and answers there by itself.
		Transport:     &http.Transport{TLSClientConfig: tlsConfig, MaxConnsPerHost: 2, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	names := map[string]int{}
	for _, server := range config.ServerList {
		at, err := url.Parse(server)
		if err != nil {
			return nil, fmt.Errorf("--etcd-servers: %w", err)
		}
		if at.Scheme == "unix" { // an embedded one
			m.members = append(m.members, etcdMember{name: embeddedMember})
			continue
		}
		name, _, _ := strings.Cut(at.Hostname(), ".")
		names[name]++
		m.members = append(m.members, etcdMember{name: name, url: at.JoinPath("metrics").String()})
	}
	for i, server := range config.ServerList {
		if names[m.members[i].name] > 1 { // addresses, or several ports of a host
			m.members[i].name = server
		}
	}
	return m, nil
}

// ServeHTTP implements http.Handler. A member that does not answer is not an error of
// the page: sandlot_etcd_member_up says so.
func (m *etcdMetrics) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), etcdMetricsTimeout)
	defer cancel()
	pages := make([]map[string]*dto.MetricFamily, len(m.members))
	var reading sync.WaitGroup
	for i, member := range m.members {
		reading.Go(func() {
			page, err := m.read(ctx, member)
			if err != nil {
				klog.V(2).InfoS("Failed to read the metrics of a member of etcd", "member", member.name, "reason", err.Error())
			}
			pages[i] = page
		})
	}
	reading.Wait()
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	w.Header().Set("Content-Type", string(format))
	encoder := expfmt.NewEncoder(w, format)
	families := m.merge(pages)
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if err := encoder.Encode(families[name]); err != nil {
			return // the client has left
		}
	}
}

func (m *etcdMetrics) read(ctx context.Context, member etcdMember) (map[string]*dto.MetricFamily, error) {
	if member.url == "" {
		return readEmbedded()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, member.url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", member.url, resp.Status)
	}
	body := &io.LimitedReader{R: resp.Body, N: etcdMetricsBytes}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(body)
	switch {
	case body.N <= 0:
		return nil, errors.New("the answer is too long")
	case err != nil:
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return families, nil
}

// readEmbedded reads the metrics of an etcd inside this process, where they are not among
// those of Kubernetes' libraries.
func readEmbedded() (map[string]*dto.MetricFamily, error) {
	families, err := prometheus.DefaultGatherer.Gather()
	page := map[string]*dto.MetricFamily{}
	for _, family := range families {
		page[family.GetName()] = family
	}
	return page, err
}

// merge puts the pages of the members, in their order, into one. That of a member that
// has not answered is nil.
func (m *etcdMetrics) merge(pages []map[string]*dto.MetricFamily) map[string]*dto.MetricFamily {
	up := &dto.MetricFamily{
		Name: new(etcdUpMetric), Type: dto.MetricType_GAUGE.Enum(),
		Help: new("1 for a member of etcd whose metrics are here, 0 for one that has not answered."),
	}
	merged := map[string]*dto.MetricFamily{etcdUpMetric: up}
	for i, page := range pages {
		label := &dto.LabelPair{Name: new(etcdMemberLabel), Value: new(m.members[i].name)}
		is := 0.0
		if page != nil {
			is = 1
		}
		up.Metric = append(up.Metric, &dto.Metric{Label: []*dto.LabelPair{label}, Gauge: &dto.Gauge{Value: new(is)}})
		for name, family := range page {
			for _, metric := range family.Metric {
				metric.Label = append(slices.Clip(metric.Label), label)
			}
			switch known := merged[name]; {
			case known == nil:
				merged[name] = family
			case known.GetType() == family.GetType(): // or they are of versions that differ
				known.Metric = append(known.Metric, family.Metric...)
			}
		}
	}
	return merged
}
