// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"k8s.io/client-go/rest"
)

const namespace = "default"

// scrape is what a program shows at /metrics.
type scrape map[string]*dto.MetricFamily

func scrapeOf(t *testing.T, config *rest.Config, url string) scrape {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", url, resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return families
}

// value is the sum of the series of a metric that have these labels, given as
// "name=value": the value of a gauge or a counter, the count of a histogram. NaN
// if there is none.
func (s scrape) value(name string, labels ...string) float64 {
	family := s[name]
	total, found := 0.0, false
	for _, metric := range family.GetMetric() {
		if !hasLabels(metric, labels) {
			continue
		}
		found = true
		switch {
		case metric.Gauge != nil:
			total += metric.GetGauge().GetValue()
		case metric.Counter != nil:
			total += metric.GetCounter().GetValue()
		case metric.Histogram != nil:
			total += float64(metric.GetHistogram().GetSampleCount())
		}
	}
	if !found {
		return math.NaN()
	}
	return total
}

func hasLabels(metric *dto.Metric, labels []string) bool {
	for _, label := range labels {
		name, value, _ := strings.Cut(label, "=")
		if !slices.ContainsFunc(metric.GetLabel(), func(pair *dto.LabelPair) bool {
			return pair.GetName() == name && pair.GetValue() == value
		}) {
			return false
		}
	}
	return true
}

// names are the names of the metrics that begin like this.
func (s scrape) names(prefix string) []string {
	return slices.Sorted(func(yield func(string) bool) {
		for name := range maps.Keys(s) {
			if strings.HasPrefix(name, prefix) && !yield(name) {
				return
			}
		}
	})
}
