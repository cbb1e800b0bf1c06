// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/sandlot-io/sandlot/pkg/controllers"
	"github.com/sandlot-io/sandlot/pkg/install/certificates"
	"github.com/sandlot-io/sandlot/pkg/install/encryptionkeys"
	"github.com/sandlot-io/sandlot/pkg/podnamespace"
)

// kubeAPIQPS and kubeAPIBurst let pools be filled at the pace of a cluster, which makes
// hundreds of pods a second at most, with some requests for each.
const (
	kubeAPIQPS   = 2000
	kubeAPIBurst = 4000
)

// Options say how the background work is done. The zero value is good for a
// single process without a cluster: no leader election, no ports, no limit of
// requests. For other numbers, 0 means the default.
type Options struct {
	// LeaderElect lets only one of several managers work.
	LeaderElect bool
	// LeaderElectionNamespace is where the lease of the leader is. Empty means Namespace.
	LeaderElectionNamespace string
	// MetricsBindAddress is where metrics are served, over TLS with the certificate of the
	// Secret certificates.ManagerServingSecret in Certificates.Namespace, to who may get the
	// non-resource URL /metrics. Empty or "0" is nowhere.
	MetricsBindAddress string
	// HealthProbeBindAddress is where healthz and readyz are served. Empty or "0"
	// is nowhere.
	HealthProbeBindAddress string

	// KubeAPIQPS and KubeAPIBurst limit the requests to the API a second, of all clients
	// together but the one that keeps the lease. 0 is no limit.
	KubeAPIQPS   float32
	KubeAPIBurst int

	// Options are those of the controllers. An empty Namespace is that of the lease, if
	// that is said, or else controllers.DefaultNamespace.
	controllers.Options

	// ManageCertificates makes sandlot-controller-manager look after the certificates
	// of the install as well, as Certificates say. Leader election is as above, with
	// a lease of its own.
	ManageCertificates bool
	Certificates       certificates.Options
	// ManageEncryptionKeys makes it look after the keys that the store is encrypted with,
	// in the namespace of the certificates.
	ManageEncryptionKeys bool
	EncryptionKeys       encryptionkeys.Options

	// ListerWatcher is how the objects of a kind are listed and watched, where that
	// is to be had without the API: when its server runs in the same process. It
	// may return nil, and may be nil itself.
	ListerWatcher func(kind runtime.Object) cache.ListerWatcher
}

// NewOptions returns the defaults of the program sandlot-controller-manager.
func NewOptions() *Options {
	o := &Options{
		LeaderElect:            true,
		MetricsBindAddress:     ":8080",
		HealthProbeBindAddress: ":8081",
		KubeAPIQPS:             kubeAPIQPS,
		KubeAPIBurst:           kubeAPIBurst,
		Certificates:           certificates.NewOptions(),
		EncryptionKeys:         encryptionkeys.NewOptions(),
	}
	*o = o.withDefaults()
	o.EnableWarmPoolEviction = true
	// Where they are follows from the pod, or else from the flags.
	o.Namespace = podnamespace.Get()
	o.LeaderElectionNamespace, o.Certificates.Namespace = "", ""
	return o
}

// withDefaults fills in the numbers that are 0, and what follows from other options.
func (o Options) withDefaults() Options {
	defaults := controllers.DefaultOptions()
	orDefault(&o.SandboxSetWorkers, defaults.SandboxSetWorkers)
	orDefault(&o.SandboxClaimWorkers, defaults.SandboxClaimWorkers)
	orDefault(&o.SandboxWorkers, defaults.SandboxWorkers)
	orDefault(&o.PodWorkers, defaults.PodWorkers)
	orDefault(&o.RefillConcurrency, defaults.RefillConcurrency)
	orDefault(&o.QuietPeriod, defaults.QuietPeriod)
	orDefault(&o.MaxPendingTimeout, defaults.MaxPendingTimeout)
	orDefault(&o.NodeTimeout, defaults.NodeTimeout)
	orDefault(&o.RecycleTimeout, defaults.RecycleTimeout)
	orDefault(&o.ClaimEvents, defaults.ClaimEvents)
	orDefault(&o.ClusterDomain, defaults.ClusterDomain)
	orDefault(&o.Namespace, cmp.Or(o.LeaderElectionNamespace, defaults.Namespace))
	orDefault(&o.LeaderElectionNamespace, o.Namespace)
	orDefault(&o.Certificates.Namespace, o.Namespace)
	return o
}

func orDefault[T comparable](field *T, value T) {
	var none T
	if *field == none {
		*field = value
	}
}

// AddFlags adds the flags of sandlot-controller-manager.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect,
		"If true, only one of several controller managers is active at a time.")
	fs.StringVar(&o.LeaderElectionNamespace, "leader-election-namespace", o.LeaderElectionNamespace,
		"Namespace of the leader election Lease. Defaults to --namespace.")
	fs.StringVar(&o.Namespace, "namespace", o.Namespace,
		"Namespace of the installation. The ConfigMap sandbox-injection-config with the runtimes is in it, and the generated NetworkPolicies of sandboxes admit its API servers and gateways. Defaults to the namespace of the pod (POD_NAMESPACE, or the file of its ServiceAccount), or else to that of the leader election Lease.")
	fs.StringVar(&o.SandboxRouterNamespace, "sandbox-router-namespace", o.SandboxRouterNamespace,
		"Namespace of the router of agent-sandbox. The generated NetworkPolicies of sandboxes admit its pods with the label app=sandbox-router. Defaults to --namespace.")
	fs.StringVar(&o.ClusterDomain, "cluster-domain", o.ClusterDomain,
		"DNS domain of the cluster, which is part of the serviceFQDN of sandboxes with a Service.")
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress,
		"Address to serve /metrics on over TLS. Users need the right to get that path. 0 disables it.")
	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress,
		"Address to serve /healthz and /readyz on over HTTP. 0 disables it.")
	fs.Float32Var(&o.KubeAPIQPS, "kube-api-qps", o.KubeAPIQPS,
		"Maximum number of requests per second to the API. 0 disables the limit.")
	fs.IntVar(&o.KubeAPIBurst, "kube-api-burst", o.KubeAPIBurst,
		"Number of requests to the API that may exceed --kube-api-qps in a burst.")
	fs.IntVar(&o.SandboxSetWorkers, "sandboxset-workers", o.SandboxSetWorkers,
		"Number of SandboxSets that are reconciled at the same time.")
	fs.IntVar(&o.SandboxClaimWorkers, "sandboxclaim-workers", o.SandboxClaimWorkers,
		"Number of SandboxClaims that each controller reconciles at the same time.")
	fs.IntVar(&o.SandboxWorkers, "sandbox-workers", o.SandboxWorkers,
		"Number of Sandboxes that each controller pauses or shuts down at the same time.")
	fs.IntVar(&o.PodWorkers, "pod-workers", o.PodWorkers,
		"Number of Sandboxes whose pods are created and observed at the same time.")
	fs.IntVar(&o.RefillConcurrency, "refill-concurrency", o.RefillConcurrency,
		"Maximum number of Sandboxes of one SandboxSet that are created or deleted at the same time. It is lower while claims take Sandboxes from the set, down to 1 if the pool is full.")
	fs.DurationVar(&o.QuietPeriod, "refill-quiet-period", o.QuietPeriod,
		"Time without claims on a SandboxSet after which its refill begins while at least half of the pool is left. The refill begins after five seconds in any case. A negative value disables the wait.")
	fs.BoolVar(&o.EnableWarmPoolEviction, "enable-warm-pool-eviction", o.EnableWarmPoolEviction,
		"If true, the cluster autoscaler may evict the pods of unclaimed Sandboxes of SandboxSets whose update type is Recreate or OnReplenish, unless their template says otherwise.")
	fs.DurationVar(&o.MaxPendingTimeout, "max-pending-timeout", o.MaxPendingTimeout,
		"Time after which a Pending Sandbox of a pool counts as failed to start, for scaleStrategy.maxUnavailable and the condition ScalingLimited. Values are clamped to 15s..3590s.")
	fs.DurationVar(&o.NodeTimeout, "unavailable-node-timeout", o.NodeTimeout,
		"Time for which a node must be cordoned, not ready or gone before the unclaimed Sandboxes of pools on it are replaced.")
	fs.DurationVar(&o.RecycleTimeout, "recycle-timeout", o.RecycleTimeout,
		"Maximum time to recycle a Sandbox, from the request until its new pod is ready. After that recycling fails.")
	fs.StringVar((*string)(&o.ClaimEvents), "claim-events", string(o.ClaimEvents),
		"Which SandboxClaims get events: None, Waiting (those that wait for Sandboxes), or All. Each event is a write to the etcd of the cluster.")
	fs.BoolVar(&o.ManageCertificates, "manage-certificates", o.ManageCertificates,
		"If true, issue, rotate and publish the certificates of the installation. Otherwise the administrator provides them.")
	o.Certificates.AddFlags(fs)
	fs.BoolVar(&o.ManageEncryptionKeys, "manage-encryption-keys", o.ManageEncryptionKeys,
		"If true, generate and rotate the keys with which sandlot-apiserver encrypts its store, in the namespace of the certificates. Otherwise the administrator provides them.")
	o.EncryptionKeys.AddFlags(fs)
	fs.BoolVar(&o.Simulate, "simulate-sandboxes", o.Simulate,
		"If true, Sandboxes become Running without pods, and this program does the work of the garbage collector. For use without a cluster.")
	fs.DurationVar(&o.SimulatedStartDelay, "simulated-start-delay", o.SimulatedStartDelay,
		"Time that a simulated Sandbox takes to become Running.")
}

// Validate reports what is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	for flag, value := range map[string]int{
		"sandboxset-workers":   o.SandboxSetWorkers,
		"sandboxclaim-workers": o.SandboxClaimWorkers,
		"sandbox-workers":      o.SandboxWorkers,
		"pod-workers":          o.PodWorkers,
		"refill-concurrency":   o.RefillConcurrency,
	} {
		if value < 0 {
			errs = append(errs, fmt.Errorf("--%s must not be negative, is %d", flag, value))
		}
	}
	switch o.ClaimEvents {
	case "", controllers.ClaimEventsNone, controllers.ClaimEventsWaiting, controllers.ClaimEventsAll:
	default:
		errs = append(errs, fmt.Errorf("--claim-events must be None, Waiting or All, is %q", o.ClaimEvents))
	}
	if o.KubeAPIQPS < 0 {
		errs = append(errs, fmt.Errorf("--kube-api-qps must not be negative, is %g", o.KubeAPIQPS))
	}
	if o.KubeAPIQPS > 0 && o.KubeAPIBurst < 1 {
		errs = append(errs, errors.New("--kube-api-burst must be at least 1 where --kube-api-qps is a limit"))
	}
	if o.NodeTimeout < 0 {
		errs = append(errs, fmt.Errorf("--unavailable-node-timeout must not be negative, is %s", o.NodeTimeout))
	}
	if o.RecycleTimeout < 0 {
		errs = append(errs, fmt.Errorf("--recycle-timeout must not be negative, is %s", o.RecycleTimeout))
	}
	if o.SimulatedStartDelay < 0 {
		errs = append(errs, fmt.Errorf("--simulated-start-delay must not be negative, is %s", o.SimulatedStartDelay))
	}
	if o.ManageCertificates {
		complete := o.withDefaults()
		errs = append(errs, complete.Certificates.Validate())
	}
	if o.ManageEncryptionKeys {
		errs = append(errs, o.EncryptionKeys.Validate())
	}
	return errors.Join(errs...)
}
