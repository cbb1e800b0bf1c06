// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/component-base/compatibility"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/localpki"
	"github.com/sandlot-io/sandlot/pkg/podnamespace"
	"github.com/sandlot-io/sandlot/pkg/version"
)

// Config applies the options to a new configuration. It opens the port, and
// asks the cluster if there is one. The caller closes the listener if it does
// not continue to run the server.
func (o *Options) Config() (*apiserver.Config, error) {
	if o.SecureServing.ServerCert.GeneratedCert == nil {
		loopback := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
		if err := o.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, loopback); err != nil {
			return nil, fmt.Errorf("making a serving certificate: %w", err)
		}
	}
	cfg := apiserver.NewConfig()
	cfg.ExtraConfig.SyncWindow = o.SyncWindow
	cfg.ExtraConfig.ClaimLimits = o.ClaimLimits.ClaimLimits
	cfg.ExtraConfig.MaxFreshSandboxes = o.ClaimLimits.MaxFreshSandboxes
	cfg.ExtraConfig.ClaimPodMetadata = o.ClaimLimits.PodMetadata
	cfg.ExtraConfig.MaxWaitingClaims = o.ClaimLimits.MaxWaiting
	cfg.ExtraConfig.StrictAgentSandboxClaims = o.StrictAgentSandboxClaims
	cfg.ExtraConfig.AllowedLabelDomains = o.AllowedLabelDomains
	cfg.ExtraConfig.MaxWaitingCreates = o.waitingCreates()
	cfg.ExtraConfig.ServeSnapshots = o.ServeSnapshots
	cfg.ExtraConfig.WithoutClaimObservations = o.DisableClaimObservations
	cfg.ExtraConfig.WriteLimits = o.WriteLimits.Limits
	cfg.ExtraConfig.ExemptWriters = exemptWriters(podnamespace.Get())
	cfg.ExtraConfig.MaintainEtcd = o.Etcd.StorageConfig.CompactionInterval > 0
	cfg.ExtraConfig.StorageFormat = o.format
	cfg.ExtraConfig.StorageMediaType = o.Etcd.DefaultStorageMediaType
	cfg.ExtraConfig.EmbeddedEtcd = o.EmbeddedEtcdDir != ""
	var err error
	if cfg.ExtraConfig.RuntimeCertificates, err = o.Runtimes.certificates(); err != nil {
		return nil, err
	}
	if err := o.apply(cfg.GenericConfig); err != nil {
		if serving := cfg.GenericConfig.SecureServing; serving != nil && serving.Listener != nil {
			_ = serving.Listener.Close() // the first error is the one that matters
		}
		return nil, err
	}
	return cfg, nil
}

// apply goes in the order in which the parts depend on each other.
func (o *Options) apply(cfg *genericapiserver.RecommendedConfig) error {
	steps := []func() error{
		func() error { return o.applyRun(cfg) },
		func() error { return o.applyServing(&cfg.Config) },
		func() error { return o.Traces.ApplyTo(nil, &cfg.Config) },
		func() error { return o.applyEtcd(cfg) },
		func() error { return o.Audit.ApplyTo(&cfg.Config) },
		func() error {
			if o.hasCluster() {
				return o.applyCluster(cfg)
			}
			return o.applyAlone(cfg)
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) applyRun(cfg *genericapiserver.RecommendedConfig) error {
	if err := o.ServerRun.ApplyTo(&cfg.Config); err != nil {
		return err
	}
	cfg.EffectiveVersion = namedVersion{cfg.EffectiveVersion}
	return nil
}

// applyServing lets the server serve, also to its own client. SecureServingOptionsWithLoopback would
// do the same, but makes two RSA keys for that client, which take most of the processor time of a
// start.
func (o *Options) applyServing(cfg *genericapiserver.Config) error {
	if err := o.SecureServing.ApplyTo(&cfg.SecureServing); err != nil {
		return err
	}
	made, err := localpki.SelfSigned(genericapiserver.LoopbackClientServerNameOverride, clock.RealClock{})
	if err != nil {
		return err
	}
	pair, err := dynamiccertificates.NewStaticSNICertKeyContent("self-signed loopback", made.Cert, made.Key, genericapiserver.LoopbackClientServerNameOverride)
	if err != nil {
		return err
	}
	// The first of a name is the one that counts.
	cfg.SecureServing.SNICerts = slices.Insert(cfg.SecureServing.SNICerts, 0, pair)
	cfg.LoopbackClientConfig, err = cfg.SecureServing.NewLoopbackClientConfig(string(uuid.NewUUID()), made.Cert)
	return err
}

// namedVersion says in /version which Kubernetes this API server is like, and
// which version of Sandlot it is.
type namedVersion struct {
	compatibility.EffectiveVersion
}

func (v namedVersion) Info() *apimachineryversion.Info {
	info := v.EffectiveVersion.Info()
	// Clients parse it as a semantic version, in which "+" may stand only once.
	ours := strings.ReplaceAll(version.Get(), "+", ".")
	info.GitVersion = fmt.Sprintf("v%d.%d.0+sandlot.%s", v.BinaryVersion().Major(), v.BinaryVersion().Minor(), ours)
	info.GitCommit, info.BuildDate = "", ""
	return info
}

func (o *Options) applyEtcd(cfg *genericapiserver.RecommendedConfig) error {
	etcd := *o.Etcd
	etcd.StorageConfig.Transport.TracerProvider = cfg.TracerProvider
	if err := etcd.ApplyTo(&cfg.Config); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	return nil
}
