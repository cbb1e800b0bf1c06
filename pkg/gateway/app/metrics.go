// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/monitoring"
	"github.com/sandlot-io/sandlot/pkg/tokens"
	"github.com/sandlot-io/sandlot/pkg/version"
)

var (
	buildInfo = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace:      "sandlot",
		Name:           "build_info",
		Help:           "1, with the version of Sandlot that runs.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"version"})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(buildInfo)
		buildInfo.WithLabelValues(version.Get()).Set(1)
	})
)

// serveMetrics serves /metrics to users who may get that path in the cluster of config.
func serveMetrics(ctx context.Context, address string, secure *tls.Config, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("client of the cluster: %w", err)
	}
	handler, err := tokens.Metrics(klog.FromContext(ctx), config, client, legacyregistry.Handler(), clock.RealClock{})
	if err != nil {
		return fmt.Errorf("access to metrics: %w", err)
	}
	server, err := monitoring.NewServer(ctx, "metrics", address, secure, handler)
	if err != nil {
		return fmt.Errorf("--metrics-bind-address: %w", err)
	}
	return server.Start(ctx)
}
