// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
	controllermetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
)

// serveMetrics lets /metrics of the server show those of the controllers too,
// which run in the same process and have a registry of their own.
func serveMetrics(server *apiserver.Server) {
	mux := server.GenericAPIServer.Handler.NonGoRestfulMux
	mux.Unregister("/metrics")
	mux.Handle("/metrics", promhttp.HandlerFor(
		joined{legacyregistry.DefaultGatherer, controllermetrics.Registry},
		promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
}

// joined gathers from several registries of one process. Where more than one of
// them has a metric, its series are those of all of them (the work queues of both
// sides); a series that more than one has, such as those about the process
// itself, is taken from the first.
type joined []prometheus.Gatherer

// Gather implements prometheus.Gatherer.
func (j joined) Gather() ([]*dto.MetricFamily, error) {
	all := map[string]*dto.MetricFamily{}
	var errs []error
	for _, gatherer := range j {
		families, err := gatherer.Gather()
		errs = append(errs, err)
		for _, family := range families {
			known := all[family.GetName()]
			if known == nil {
				all[family.GetName()] = family
			} else if known.GetType() == family.GetType() {
				known.Metric = append(known.Metric, slices.DeleteFunc(family.Metric, func(metric *dto.Metric) bool {
					return slices.ContainsFunc(known.Metric, func(other *dto.Metric) bool { return sameLabels(metric, other) })
				})...)
			}
		}
	}
	byName := func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) }
	return slices.SortedFunc(maps.Values(all), byName), errors.Join(errs...)
}

// sameLabels compares the labels of two metrics, which are sorted.
func sameLabels(a, b *dto.Metric) bool {
	return slices.EqualFunc(a.Label, b.Label, func(a, b *dto.LabelPair) bool {
		return a.GetName() == b.GetName() && a.GetValue() == b.GetValue()
	})
}
