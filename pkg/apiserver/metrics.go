// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // what is asked of the cluster

	"github.com/sandlot-io/sandlot/pkg/version"
)

var (
	feedLists = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "sandlot",
		Name:      "feed_lists_total",
		Help: "How often the allocator read all objects of a resource: once at the start, and again " +
			"whenever its watch could not go on.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"resource"})

	buildInfo = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace:      "sandlot",
		Name:           "build_info",
		Help:           "1, with the version of Sandlot that runs.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"version"})

	connectionsOpen = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace:      "sandlot",
		Subsystem:      "apiserver",
		Name:           "connections",
		Help:           "Number of connections that are open.",
		StabilityLevel: metrics.ALPHA,
	})

	connectionsRefused = metrics.NewCounter(&metrics.CounterOpts{
		Namespace:      "sandlot",
		Subsystem:      "apiserver",
		Name:           "connections_refused_total",
		Help:           "Number of connections that were closed at once, because there were too many and none could be closed for them.",
		StabilityLevel: metrics.ALPHA,
	})

	connectionsEvicted = metrics.NewCounter(&metrics.CounterOpts{
		Namespace:      "sandlot",
		Subsystem:      "apiserver",
		Name:           "connections_evicted_total",
		Help:           "Number of connections that were closed for new ones, because there were too many: those without a request, or of a network that had more than its share.",
		StabilityLevel: metrics.ALPHA,
	})

	largeHeadersRefused = metrics.NewCounter(&metrics.CounterOpts{
		Namespace:      "sandlot",
		Subsystem:      "apiserver",
		Name:           "large_headers_refused_total",
		Help:           "Number of connections closed because their source, or all sources together, had no slot left for large headers.",
		StabilityLevel: metrics.ALPHA,
	})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(feedLists, buildInfo, connectionsOpen, connectionsRefused, connectionsEvicted, largeHeadersRefused)
		buildInfo.WithLabelValues(version.Get()).Set(1)
	})
)
