// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"crypto/tls"
	"fmt"
	"net/http"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sandlot-io/sandlot/pkg/install/certificates"
	"github.com/sandlot-io/sandlot/pkg/tokens"
)

// metricsOptions say how metrics are served: over TLS, to who may get /metrics in the
// cluster at cfg. They are served by each replica, leader or not.
func metricsOptions(cfg *rest.Config, o Options) (metricsserver.Options, error) {
	if o.MetricsBindAddress == "" || o.MetricsBindAddress == "0" {
		return metricsserver.Options{BindAddress: "0"}, nil // empty is a default of controller-runtime
	}
	client, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return metricsserver.Options{}, fmt.Errorf("client for the certificate of metrics: %w", err)
	}
	served := certificates.NewServed(client.Secrets(o.Certificates.Namespace), certificates.ManagerServingSecret, clock.RealClock{})
	return metricsserver.Options{
		BindAddress:   o.MetricsBindAddress,
		SecureServing: true,
		FilterProvider: func(cfg *rest.Config, client *http.Client) (metricsserver.Filter, error) {
			return tokens.Metrics(cfg, client, clock.RealClock{})
		},
		TLSOpts: []func(*tls.Config){func(config *tls.Config) {
			config.GetCertificate = served.GetCertificate
			config.MinVersion = tls.VersionTLS12
		}},
	}, nil
}
