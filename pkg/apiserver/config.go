// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
	"github.com/sandlot-io/sandlot/pkg/apiserver/decoding"
	"github.com/sandlot-io/sandlot/pkg/apiserver/drain"
	"github.com/sandlot-io/sandlot/pkg/apiserver/etcdquota"
	"github.com/sandlot-io/sandlot/pkg/apiserver/limits"
	"github.com/sandlot-io/sandlot/pkg/apiserver/scheme"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podaddress"
	"github.com/sandlot-io/sandlot/pkg/store/snapshot"
	"github.com/sandlot-io/sandlot/pkg/store/watchcache"
	"github.com/sandlot-io/sandlot/registry/agentsandbox/conversion"
	sandboxrest "github.com/sandlot-io/sandlot/registry/sandbox/rest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandbox"
)

// DefaultSyncWindow is how long a create of a claim waits for sandboxes by
// default before it answers. It stays well below the 34 seconds that the
// generic server gives a create.
const DefaultSyncWindow = 10 * time.Second

// DefaultMaxFreshSandboxes is how many sandboxes that were made for it one claim may hold at a
// time by default.
const DefaultMaxFreshSandboxes = 1000

// Which labels and annotations of claims reach pods, where neither the SandboxSet nor the
// SandboxTemplate has a policy.
const (
	// ClaimPodMetadataPrefixed lets all annotations reach pods, and the labels whose keys have a
	// prefix: not app, which a Service may select by.
	ClaimPodMetadataPrefixed = "Prefixed"
	// ClaimPodMetadataAll lets all of them reach pods.
	ClaimPodMetadataAll = "All"
	// ClaimPodMetadataNone keeps them on Sandboxes alone.
	ClaimPodMetadataNone = "None"
)

// DefaultMaxWaitingClaims is how many claims of a namespace may wait by default. A
// server keeps the positions of all of them in memory.
const DefaultMaxWaitingClaims = 5000

// ExtraConfig is what our server needs beyond the generic one.
type ExtraConfig struct {
	// SyncWindow is how long a create of a claim may wait for sandboxes before it
	// answers with what it has.
	SyncWindow time.Duration
	// WithoutClaimObservations keeps claims of agent-sandbox from getting annotations that say
	// when they were seen and ready, and in which trace.
	WithoutClaimObservations bool
	// ClaimLimits bound what one claim may ask for.
	ClaimLimits validation.ClaimLimits
	// MaxFreshSandboxes is how many sandboxes one claim may hold at a time that were
	// made for it, where neither set nor template says.
	MaxFreshSandboxes int
	// ClaimPodMetadata is ClaimPodMetadataPrefixed, ClaimPodMetadataAll or
	// ClaimPodMetadataNone; empty is Prefixed.
	ClaimPodMetadata string
	// MaxWaitingClaims is how many claims of a namespace may wait for sandboxes. A
	// create that would have to wait beyond that is refused. 0 is no limit.
	MaxWaitingClaims int
	// MaxWaitingCreates is how many creates of claims wait at the same time. Others are
	// answered Claiming at once. 0 is no limit.
	MaxWaitingCreates int
	// AllowedLabelDomains are the domains of the labels that claims of agent-sandbox may
	// put on their pods; validation.DefaultLabelDomain if empty.
	AllowedLabelDomains []string
	// StrictAgentSandboxClaims refuses claims of agent-sandbox that are stored with a
	// condition against them otherwise.
	StrictAgentSandboxClaims bool
	// RuntimeCertificates are for the agent-runtimes that speak TLS; nil is none.
	RuntimeCertificates *agentruntime.Certificates
	// RuntimeAttempt is how long one attempt to initialize an agent-runtime may take; 1 s
	// if 0.
	RuntimeAttempt time.Duration

	// WriteLimits limit the bytes that are written to etcd for each namespace and user.
	WriteLimits etcdquota.Limits
	// WatchLimits bound the number of watches, and the memory of those whose clients do not read.
	WatchLimits limits.WatchLimits
	// ExemptWriters are the names of the users whose writes count but are not rejected by
	// WriteLimits.
	ExemptWriters sets.Set[string]
	// MaintainEtcd lets this server compact etcd early, defragment it near its quota, and recover
	// it when it is full. EmbeddedEtcd means that etcd runs in this process: then the server
	// always does so, and reclaims disk space.
	MaintainEtcd, EmbeddedEtcd bool
	// Clock is the clock of the write limits, of the maintenance of etcd, and of the versions of
	// the key for agent-runtimes; nil is the real clock.
	Clock clock.WithTicker
	// StorageFormat is the format of the codec of the storage, and StorageMediaType the one in which
	// objects are to be stored: runtime.ContentTypeProtobuf or runtime.ContentTypeJSON.
	StorageFormat    *StorageFormat
	StorageMediaType string
	// ServeSnapshots gives snapshots of the whole etcd at snapshot.Path.
	ServeSnapshots bool

	// wrapKV lets tests wrap the etcd client of the allocator.
	wrapKV func(clientv3.KV) clientv3.KV
}

// podMetadata returns the policy for pods where neither the set nor the template has one.
func (c *ExtraConfig) podMetadata() *v1alpha1.PodMetadataPolicy {
	switch c.ClaimPodMetadata {
	case ClaimPodMetadataAll:
		return nil
	case ClaimPodMetadataNone:
		return &v1alpha1.PodMetadataPolicy{}
	default:
		return &v1alpha1.PodMetadataPolicy{Labels: []string{claims.PrefixedKeys}, Annotations: []string{claims.AnyKey}}
	}
}

func (c *ExtraConfig) clock() clock.WithTicker {
	if c.Clock == nil {
		return clock.RealClock{}
	}
	return c.Clock
}

func (c *ExtraConfig) wrap(kv clientv3.KV) clientv3.KV {
	if c.wrapKV == nil {
		return kv
	}
	return c.wrapKV(kv)
}

// Config is the configuration of the server.
type Config struct {
	GenericConfig *genericapiserver.RecommendedConfig
	ExtraConfig   ExtraConfig
}

type completedConfig struct {
	genericConfig genericapiserver.CompletedConfig
	extraConfig   *ExtraConfig
	// cluster is nil for a server without one.
	cluster *restclient.Config
	kinds   decoding.Kinds
}

// CompletedConfig embeds a private type, so that no server can be built from a
// configuration that was not completed.
type CompletedConfig struct {
	*completedConfig
}

// NewConfig returns a configuration with what does not depend on options.
func NewConfig() *Config {
	generic := genericapiserver.NewRecommendedConfig(scheme.Codecs)
	generic.OpenAPIConfig, generic.OpenAPIV3Config = openAPIConfigs()
	generic.EquivalentResourceRegistry = newEquivalents()
	// Requests that are forwarded to a sandbox have no time limit.
	longRunning := genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString("proxy"))
	generic.LongRunningFunc = func(r *http.Request, info *request.RequestInfo) bool {
		return longRunning(r, info) || snapshot.IsRequest(r, info)
	}
	return &Config{GenericConfig: generic, ExtraConfig: ExtraConfig{
		SyncWindow: DefaultSyncWindow, ClaimLimits: validation.DefaultClaimLimits(), MaxFreshSandboxes: DefaultMaxFreshSandboxes,
		MaxWaitingClaims: DefaultMaxWaitingClaims, WriteLimits: etcdquota.DefaultLimits(),
		WatchLimits: limits.DefaultWatchLimits(), StorageFormat: &StorageFormat{},
	}}
}

// Complete fills in what can be derived. It changes the receiver.
func (cfg *Config) Complete() CompletedConfig {
	c := &completedConfig{
		extraConfig: &cfg.ExtraConfig,
		cluster:     cfg.GenericConfig.ClientConfig,
		kinds:       decoding.Kinds{},
	}
	generic := cfg.GenericConfig
	if generic.AdmissionControl != nil {
		generic.AdmissionControl = carrying{generic.AdmissionControl, conversion.Carrier{Scheme: scheme.Scheme}}
	}
	if generic.RESTOptionsGetter != nil {
		generic.RESTOptionsGetter = watchcache.Options(generic.RESTOptionsGetter)
	}
	if serving := generic.SecureServing; serving != nil && serving.Listener != nil {
		serving.Listener = limits.NewConnections().Listener(serving.Listener)
	}
	chain := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(handler http.Handler, config *genericapiserver.Config) http.Handler {
		handler = decoding.WithPatchRules(handler, decoding.PatchOptions{
			Scheme: scheme.Scheme, Codecs: scheme.Codecs, Kinds: c.kinds, MaxBytes: config.MaxRequestBodyBytes, Exempt: c.extraConfig.ExemptWriters,
		})
		handler = limits.WithBodies(withClaimOptions(handler), limits.NewBodyLimits(config.MaxRequestBodyBytes, c.extraConfig.ExemptWriters), config.LongRunningFunc)
		slotted := limits.WithProcessorSlots(handler, c.extraConfig.ExemptWriters)
		reads := limits.WithReadLimits(limits.WithWatchLimits(limits.WithoutPodTemplatesInTables(slotted), c.extraConfig.WatchLimits))
		handler = byMethod{
			http.MethodGet: reads, http.MethodHead: reads, http.MethodDelete: limits.WithDeletionLimits(slotted), others: handler,
		}
		handler = limits.WithResponseDeadline(limits.WithUpgradeLimits(handler, limits.OpenConnections()), config.LongRunningFunc, clock.RealClock{})
		handler = limits.WithBoundedSelectors(chain(handler, config))
		if delay := config.ShutdownDelayDuration; delay > 0 {
			handler = drain.New(handler, config.ShutdownInitiatedNotify(), delay, clock.RealClock{})
		}
		return limits.WithConnections(handler, config.RequestTimeout)
	}
	c.genericConfig = generic.Complete()
	return CompletedConfig{c}
}

// byMethod handles requests by their method: what only some methods need is not on the path of a create.
type byMethod map[string]http.Handler

// others is the key of the handler of other methods.
const others = ""

// ServeHTTP implements http.Handler.
func (h byMethod) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	handler, ok := h[req.Method]
	if !ok {
		handler = h[others]
	}
	handler.ServeHTTP(w, req)
}

// Server is the API server.
type Server struct {
	GenericAPIServer *genericapiserver.GenericAPIServer

	allocation *allocation
}

// New builds the server. It connects to etcd, and fails if it cannot.
func (c CompletedConfig) New() (*Server, error) {
	generic, err := c.genericConfig.New("sandlot-apiserver", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("building the generic server: %w", err)
	}
	s := &Server{GenericAPIServer: generic}

	storage, templates, err := c.storage(s)
	if err != nil {
		return nil, fmt.Errorf("storage in etcd at %v: %w", c.etcdServers(), err)
	}
	if err := c.install(s, storage, templates); err != nil {
		return nil, err
	}
	return s, c.addEtcdMetrics(s)
}

func (c CompletedConfig) etcdServers() []string {
	transport, err := c.etcdTransport()
	if err != nil {
		return nil // they are only for an error message
	}
	return transport.ServerList
}

func (c CompletedConfig) etcdTransport() (storagebackend.TransportConfig, error) {
	options, err := c.genericConfig.RESTOptionsGetter.GetRESTOptions(v1alpha1.Resource("sandboxes"), nil)
	if err != nil {
		return storagebackend.TransportConfig{}, fmt.Errorf("options of etcd: %w", err)
	}
	return options.StorageConfig.Transport, nil
}

// storage builds the REST storage of each resource, and the allocation, whose allocator binds
// sandboxes to claims. It also returns the lookup of referenced templates.
func (c CompletedConfig) storage(s *Server) (map[string]rest.Storage, *templateLookup, error) {
	getter := c.genericConfig.RESTOptionsGetter
	limiter := etcdquota.NewLimiter(c.extraConfig.WriteLimits, c.extraConfig.clock())
	limited := etcdquota.WithLimiter(getter, limiter, c.extraConfig.ExemptWriters)
	stores, err := sandboxrest.NewStores(scheme.Scheme, limited)
	if err != nil {
		return nil, nil, err
	}
	cluster, err := newCluster(c.cluster, c.genericConfig.SharedInformerFactory)
	if err != nil {
		return nil, nil, err
	}
	lookup := &templateLookup{templates: stores.SandboxTemplates, podTemplates: cluster.core()}
	admitter := newAdmitter(c.genericConfig.AdmissionControl, s.GenericAPIServer.EquivalentResourceRegistry)
	addresses := podaddress.New(cluster.pods())
	alloc, etcd, runtimes, err := newAllocator(getter, stores, lookup, admitter, cluster.core(), addresses, limiter, c.extraConfig)
	if err != nil {
		return nil, nil, err
	}
	pools := newPoolRuntimes(lookup)
	runtimes.WithTemplate = pools.withTemplate
	sandbox.SetGetsToken(stores.Sandboxes, pools.getsToken)
	gate := cluster.newGate()
	if err := addGate(gate, s.GenericAPIServer); err != nil {
		return nil, nil, err
	}
	pods := newPodValidator(gate, lookup, stores.SandboxSets)
	provider := sandboxrest.Provider{Stores: stores, Pods: pods, Binder: alloc,
		AdmitDelete: admitter.admitDelete, AdmitPodChange: admitter.admitPodChange, ClaimLimits: c.extraConfig.ClaimLimits, CheckVolumes: runtimes.Volumes.Check, Runtimes: runtimes, PodAddresses: addresses,
		AdmitAccess: admitter.admitAccess, Authorizer: c.genericConfig.Authorization.Authorizer}
	storage, claims, err := provider.NewStorage(scheme.Scheme, limited)
	if err != nil {
		return nil, nil, err
	}
	s.allocation = newAllocation(alloc, runtimes, pools, etcd, stores, claims, storage["sandboxes/proxy"].(*sandbox.ProxyREST), c.extraConfig.StorageMediaType)
	s.allocation.nodes = cluster.nodes()
	s.allocation.addMaintainer(limiter, c.extraConfig)
	s.allocation.addPruner(runtimes.Keyring, stores.Sandboxes, c.extraConfig.clock())
	if s.allocation.rewriter, err = newRewriter(getter, etcd, s.allocation.members, runtimes.Keyring, c.extraConfig.clock()); err != nil {
		return nil, nil, err
	}
	if err := s.allocation.addFormatKeeper(getter, c.extraConfig); err != nil {
		return nil, nil, err
	}
	if c.extraConfig.ServeSnapshots {
		s.GenericAPIServer.Handler.NonGoRestfulMux.Handle(snapshot.Path, &snapshot.Handler{Etcd: etcd})
	}
	if err := c.addRuntimeCertificates(s.GenericAPIServer); err != nil {
		return nil, nil, err
	}
	return storage, lookup, s.allocation.addTo(s.GenericAPIServer)
}

// LoopbackClientConfig returns the configuration of a client in this process
// that may do everything.
func (s *Server) LoopbackClientConfig() *restclient.Config {
	return restclient.CopyConfig(s.GenericAPIServer.LoopbackClientConfig)
}

// URL is where clients on this machine reach the server.
func (s *Server) URL() string { return s.GenericAPIServer.LoopbackClientConfig.Host }

// Run serves until ctx is cancelled, and returns when the calls in flight are
// finished and the connections to etcd are closed.
func (s *Server) Run(ctx context.Context) error {
	return s.GenericAPIServer.PrepareRun().RunWithContext(ctx)
}
