// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sandlot-io/sandlot/pkg/install/certificates"
	"github.com/sandlot-io/sandlot/pkg/monitoring"
	"github.com/sandlot-io/sandlot/pkg/tokens"
)

// addHealth serves /healthz and /readyz. A manager is ready when its caches have everything, leader or not. It is
// healthy as long as it answers: a lost lease and a controller that cannot start end the process by themselves, and a
// restart does not help against other errors.
func addHealth(ctx context.Context, mgr ctrl.Manager, address string) error {
	if !monitoring.Enabled(address) {
		return nil
	}
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{
		"/healthz": {"ping": healthz.Ping},
		"/readyz":  {"caches": cachesSynced(mgr)},
	} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler) // single checks
	}
	server, err := monitoring.NewServer(ctx, "health probe", address, nil, mux)
	if err != nil {
		return fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	return mgr.Add(server)
}

// cachesSynced returns a check that fails until the caches have everything.
func cachesSynced(mgr ctrl.Manager) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches are not synced")
		}
		return nil
	}
}

// addMetrics serves /metrics over TLS to users who may get that path in the cluster of cfg. Each replica serves
// them, leader or not.
func addMetrics(ctx context.Context, mgr ctrl.Manager, cfg *rest.Config, o Options) error {
	if !monitoring.Enabled(o.MetricsBindAddress) {
		return nil
	}
	client, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client for the certificate of metrics: %w", err)
	}
	handler, err := tokens.Metrics(klog.FromContext(ctx), cfg, mgr.GetHTTPClient(),
		promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}), clock.RealClock{})
	if err != nil {
		return fmt.Errorf("access to metrics: %w", err)
	}
	served := certificates.NewServed(client.Secrets(o.Certificates.Namespace), certificates.ManagerServingSecret, clock.RealClock{})
	server, err := monitoring.NewServer(ctx, "metrics", o.MetricsBindAddress, &tls.Config{GetCertificate: served.GetCertificate, MinVersion: tls.VersionTLS12}, handler)
	if err != nil {
		return fmt.Errorf("--metrics-bind-address: %w", err)
	}
	return mgr.Add(server)
}
