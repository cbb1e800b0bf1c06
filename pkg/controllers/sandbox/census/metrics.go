// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package census

import (
	"cmp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sandlot-io/sandlot/pkg/claims"
)

const (
	// maxTemplates is how many templates have figures of their own, in all and of one
	// namespace: those of which there are most sandboxes. Templates and namespaces are
	// their users' to make.
	maxTemplates            = 100
	maxTemplatesOfNamespace = 20
)

var (
	sandboxes = prometheus.NewDesc("agent_sandboxes",
		"Sandboxes, of pools and claims of either API and by themselves. "+
			"Of the 100 templates, and 20 of a namespace, with most of them; the others are counted as __other__.",
		[]string{"namespace", "ready_condition", "expired", "launch_type", "sandbox_template", "owned_by", "created_by"}, nil)

	live shown
)

func init() { metrics.Registry.MustRegister(&live) }

// shown are the censuses of the managers of this process that lead. There is one, outside
// of tests; several are added up.
type shown struct {
	mu   sync.Mutex
	runs map[*Census]struct{}
}

// add shows a census until the returned function is called.
func (s *shown) add(c *Census) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[*Census]struct{}{}
	}
	s.runs[c] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.runs, c)
	}
}

// Describe implements prometheus.Collector.
func (s *shown) Describe(ch chan<- *prometheus.Desc) { ch <- sandboxes }

// Collect implements prometheus.Collector.
func (s *shown) Collect(ch chan<- prometheus.Metric) {
	total := map[kind]int{}
	s.mu.Lock()
	for c := range s.runs {
		c.read(total)
	}
	s.mu.Unlock()
	for k, n := range bounded(total) {
		ch <- prometheus.MustNewConstMetric(sandboxes, prometheus.GaugeValue, float64(n), k.labels()...)
	}
}

// template is a template of a namespace, and ranked one with its number of sandboxes.
type (
	template struct{ namespace, name string }
	ranked   struct {
		name string
		n    int
	}
)

// bounded joins the figures of what has no place: see placed.
func bounded(all map[kind]int) map[kind]int {
	places, namespaces := placed(all)
	few := make(map[kind]int, len(all))
	for k, n := range all {
		if !places[template{k.namespace, k.template}] {
			k.template = claims.OtherFigures
			if !namespaces[k.namespace] {
				k.namespace = claims.OtherFigures
			}
		}
		few[k] += n
	}
	return few
}

// placed returns which templates have figures of their own, and which namespaces have
// such. In each namespace they are those with most sandboxes; namespaces take turns, those
// with most sandboxes first, so that one with many templates takes no place of another.
func placed(all map[kind]int) (map[template]bool, map[string]bool) {
	of := map[string]map[string]int{}
	sizes := map[string]int{}
	for k, n := range all {
		if of[k.namespace] == nil {
			of[k.namespace] = map[string]int{}
		}
		of[k.namespace][k.template] += n
		sizes[k.namespace] += n
	}
	order := byNumber(sizes)
	lines := make(map[string][]ranked, len(of))
	for namespace, templates := range of {
		lines[namespace] = byNumber(templates)
	}
	places, namespaces := map[template]bool{}, map[string]bool{}
	for round := range maxTemplatesOfNamespace {
		for _, namespace := range order {
			if line := lines[namespace.name]; round < len(line) && len(places) < maxTemplates {
				places[template{namespace.name, line[round].name}] = true
				namespaces[namespace.name] = true
			}
		}
	}
	return places, namespaces
}

// byNumber returns names, those with the highest numbers first.
func byNumber(numbers map[string]int) []ranked {
	line := make([]ranked, 0, len(numbers))
	for name, n := range numbers {
		line = append(line, ranked{name, n})
	}
	slices.SortFunc(line, func(a, b ranked) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.name, b.name)) })
	return line
}
