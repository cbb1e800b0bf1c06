// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
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
		legacyregistry.MustRegister(connectionsOpen, connectionsRefused, connectionsEvicted, largeHeadersRefused)
	})
)
