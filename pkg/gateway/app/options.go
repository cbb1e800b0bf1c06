// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"net"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/gateway/server"
)

// Options are what the command line says.
type Options struct {
	server.Options
	// Kubeconfig says how to reach the cluster. Empty means that this runs in it.
	Kubeconfig string
	// BindAddress is where requests are served, over TLS on SecurePort and without on
	// InsecurePort; 0 is neither.
	BindAddress              net.IP
	SecurePort, InsecurePort int
	// CertFile and KeyFile are the certificate, read again when they change.
	CertFile, KeyFile string
	// MetricsBindAddress is where /metrics is served, over TLS with the certificate, to who
	// may get that path in the cluster. "0" is nowhere.
	MetricsBindAddress string
	// HealthProbeBindAddress is where /healthz and /readyz are served, over HTTP.
	HealthProbeBindAddress string
	// KubeAPIQPS and KubeAPIBurst limit the requests to the cluster a second, those that are
	// the gateway's own, and those for each team.
	KubeAPIQPS   float32
	KubeAPIBurst int
	// KeysNamespace has the Secrets of the API keys.
	KeysNamespace string
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Options: server.NewOptions(), BindAddress: net.IPv4zero, SecurePort: 8443,
		MetricsBindAddress: ":8080", HealthProbeBindAddress: ":8081", KeysNamespace: apikeys.DefaultNamespace,
		KubeAPIQPS: 1000, KubeAPIBurst: 2000,
	}
}

// AddFlags adds the flags of the options to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "Path to a kubeconfig file. If it is not set, the in-cluster configuration is used.")
	fs.IPVar(&o.BindAddress, "bind-address", o.BindAddress, "Address to serve on.")
	fs.IntVar(&o.SecurePort, "secure-port", o.SecurePort, "Port to serve on over TLS. 0 disables it.")
	fs.IntVar(&o.InsecurePort, "insecure-port", o.InsecurePort, "Port to serve on without TLS, for a proxy on the same machine that terminates TLS. 0 disables it.")
	fs.StringVar(&o.CertFile, "tls-cert-file", o.CertFile, "File with the serving certificate. It is reloaded when it changes.")
	fs.StringVar(&o.KeyFile, "tls-private-key-file", o.KeyFile, "File with the private key of --tls-cert-file.")
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, "Address to serve /metrics on over TLS. Users need the right to get that path. 0 disables it.")
	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress, "Address to serve /healthz and /readyz on over HTTP.")
	fs.Float32Var(&o.KubeAPIQPS, "kube-api-qps", o.KubeAPIQPS, "Maximum number of requests per second to the cluster, separately for each team, for routes to its sandboxes, and for API keys.")
	fs.IntVar(&o.KubeAPIBurst, "kube-api-burst", o.KubeAPIBurst, "Number of requests to the cluster that may exceed --kube-api-qps in a burst.")
	fs.StringVar(&o.KeysNamespace, "keys-namespace", o.KeysNamespace, "Namespace of the Secrets with the API keys.")
	o.Options.AddFlags(fs)
}

// Validate returns all errors of the options.
func (o *Options) Validate() error {
	errs := []error{o.Options.Validate()}
	for name, port := range map[string]int{"secure-port": o.SecurePort, "insecure-port": o.InsecurePort} {
		if port < 0 || port > 65535 {
			errs = append(errs, fmt.Errorf("--%s %d is not between 0 and 65535", name, port))
		}
	}
	switch {
	case o.SecurePort == 0 && o.InsecurePort == 0:
		errs = append(errs, errors.New("one of --secure-port and --insecure-port is required"))
	case o.needsCertificate() && (o.CertFile == "" || o.KeyFile == ""):
		errs = append(errs, errors.New("--tls-cert-file and --tls-private-key-file are required with --secure-port, and with --metrics-bind-address unless that is 0"))
	}
	if o.KeysNamespace == "" {
		errs = append(errs, errors.New("--keys-namespace is required"))
	}
	if o.MetricsBindAddress == "" {
		errs = append(errs, errors.New("--metrics-bind-address is required; 0 serves none"))
	}
	if o.HealthProbeBindAddress == "" {
		errs = append(errs, errors.New("--health-probe-bind-address is required: probes ask there"))
	}
	if o.KubeAPIQPS <= 0 || o.KubeAPIBurst < 1 {
		errs = append(errs, errors.New("--kube-api-qps and --kube-api-burst must be positive"))
	}
	return utilerrors.NewAggregate(errs)
}

func (o *Options) servesMetrics() bool { return o.MetricsBindAddress != "0" }

func (o *Options) needsCertificate() bool { return o.SecurePort != 0 || o.servesMetrics() }
