// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/gateway/proxy"
)

// Options are how the gateway serves.
type Options struct {
	// Domains are those below which sandboxes have hosts, <port>-<id>.<domain>; the first is
	// reported to clients. Empty takes any domain for one.
	Domains []string
	// EnvdVersion is what is reported to clients about envd in the sandboxes: a semantic version.
	EnvdVersion string
	// MaxTimeout is the longest timeout of a sandbox in seconds.
	MaxTimeout int64
	// CanCreateKeys lets teams make API keys through the API.
	CanCreateKeys bool
	// KeyRate is how many requests a second a key may make, and KeyBurst how many at once.
	KeyRate  float64
	KeyBurst int
	// MaxAPIRequests is how many requests of the API are processed at a time, and
	// MaxForwardedRequests how many requests to sandboxes. Their sum is how many connections there
	// are at a time.
	MaxAPIRequests, MaxForwardedRequests int
	// AllowLoopback lets sandboxes have addresses of this machine, as simulated ones do.
	AllowLoopback bool
}

// NewOptions returns the defaults.
func NewOptions() Options {
	return Options{
		EnvdVersion: "0.4.0", MaxTimeout: mapping.DefaultMaxTimeout, CanCreateKeys: true,
		KeyRate: 50, KeyBurst: 200, MaxAPIRequests: 1000, MaxForwardedRequests: proxy.DefaultMaxForwardedRequests,
	}
}

// AddFlags adds the flags of the options to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.Domains, "domain", o.Domains, ""+
		"Domain of the hosts of sandboxes, <port>-<id>.<domain>. Clients get the first one. If it is not set, any domain is accepted. May be repeated.")
	fs.StringVar(&o.EnvdVersion, "envd-version", o.EnvdVersion, "Version of envd in the sandboxes that is reported to clients, which derive from it what envd supports.")
	fs.Int64Var(&o.MaxTimeout, "max-timeout", o.MaxTimeout, "Maximum timeout of a sandbox in seconds.")
	fs.BoolVar(&o.CanCreateKeys, "allow-api-keys", o.CanCreateKeys, "If true, teams can create API keys through the API.")
	fs.Float64Var(&o.KeyRate, "key-rate", o.KeyRate, "Maximum number of requests per second of an API key. A team may send ten times as many.")
	fs.IntVar(&o.KeyBurst, "key-burst", o.KeyBurst, "Number of requests that an API key may send in a burst.")
	fs.IntVar(&o.MaxAPIRequests, "max-requests", o.MaxAPIRequests, "Maximum number of concurrent requests to the API. A team gets at most as many as it leaves free for others.")
	fs.IntVar(&o.MaxForwardedRequests, "max-forwarded", o.MaxForwardedRequests, "Maximum number of concurrent requests to sandboxes. A team gets at most half of them, and a sandbox a fifth. The number of connections is limited to --max-requests plus --max-forwarded; beyond that, idle connections are closed.")
	fs.BoolVar(&o.AllowLoopback, "allow-loopback", o.AllowLoopback, "If true, forward requests to loopback addresses, which simulated sandboxes have. Not for clusters.")
}

// Validate returns all errors of the options.
func (o *Options) Validate() error {
	var errs []error
	for _, domain := range o.Domains {
		if why := validation.IsDNS1123Subdomain(strings.ToLower(domain)); len(why) > 0 {
			errs = append(errs, fmt.Errorf("--domain %q: %s", domain, why[0]))
		}
	}
	if !isVersion(o.EnvdVersion) {
		errs = append(errs, fmt.Errorf("--envd-version %q must be a semantic version from 0.1.0 on: with less, clients delete their sandboxes", o.EnvdVersion))
	}
	if o.MaxTimeout < mapping.MinTimeout {
		errs = append(errs, fmt.Errorf("--max-timeout must be at least %d", mapping.MinTimeout))
	}
	if o.KeyRate <= 0 || o.KeyBurst <= 0 {
		errs = append(errs, errors.New("--key-rate and --key-burst must be positive"))
	}
	if o.MaxAPIRequests <= 0 || o.MaxForwardedRequests <= 0 {
		errs = append(errs, errors.New("--max-requests and --max-forwarded must be positive"))
	}
	return utilerrors.NewAggregate(errs)
}
