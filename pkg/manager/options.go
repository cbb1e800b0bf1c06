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
		"Let only one of several controller managers work at a time.")
	fs.StringVar(&o.LeaderElectionNamespace, "leader-election-namespace", o.LeaderElectionNamespace,
		"The namespace of the leader's lease. Without it, --namespace.")
	fs.StringVar(&o.Namespace, "namespace", o.Namespace,
		"The namespace that Sandlot is installed in. It has the runtimes (ConfigMap sandbox-injection-config), and its API servers and gateways may reach sandboxes whose NetworkPolicy is made for them. Without it, that of the pod that this runs in (POD_NAMESPACE, or the file of its service account), or else of the leader's lease.")
	fs.StringVar(&o.SandboxRouterNamespace, "sandbox-router-namespace", o.SandboxRouterNamespace,
		"The namespace of the router of agent-sandbox: its pods with the label app=sandbox-router may reach sandboxes whose NetworkPolicy is made for them. Without it, --namespace.")
	fs.StringVar(&o.ClusterDomain, "cluster-domain", o.ClusterDomain,
		"The domain of Services in the cluster, for the serviceFQDN of sandboxes that have one.")
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress,
		"Where to serve /metrics over TLS, to who may get that path. 0 serves none.")
	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress,
		"Where to serve /healthz and /readyz over HTTP. 0 serves none.")
	fs.Float32Var(&o.KubeAPIQPS, "kube-api-qps", o.KubeAPIQPS,
		"Requests a second to the API. 0 is no limit.")
	fs.IntVar(&o.KubeAPIBurst, "kube-api-burst", o.KubeAPIBurst,
		"Requests to the API that may go beyond --kube-api-qps for a moment.")
	fs.IntVar(&o.SandboxSetWorkers, "sandboxset-workers", o.SandboxSetWorkers,
		"SandboxSets to work on at the same time.")
	fs.IntVar(&o.SandboxClaimWorkers, "sandboxclaim-workers", o.SandboxClaimWorkers,
		"SandboxClaims to work on at the same time, per controller.")
	fs.IntVar(&o.SandboxWorkers, "sandbox-workers", o.SandboxWorkers,
		"Sandboxes to work on at the same time, per controller, when their pause or shutdown time comes.")
	fs.IntVar(&o.PodWorkers, "pod-workers", o.PodWorkers,
		"Sandboxes to make pods for, and follow the pods of, at the same time.")
	fs.IntVar(&o.RefillConcurrency, "refill-concurrency", o.RefillConcurrency,
		"Sandboxes of one set to create or delete at the same time. While claims go on taking from the set, fewer, down to 1 if the pool is full.")
	fs.DurationVar(&o.QuietPeriod, "refill-quiet-period", o.QuietPeriod,
		"How long claims on a set must pause before its refill begins, while half of the pool is left, but at most five seconds. Negative is no time.")
	fs.BoolVar(&o.EnableWarmPoolEviction, "enable-warm-pool-eviction", o.EnableWarmPoolEviction,
		"Let the cluster autoscaler evict the pods of unused sandboxes, unless their template says otherwise, of sets whose update type is Recreate or OnReplenish. Those of other sets keep their nodes.")
	fs.DurationVar(&o.MaxPendingTimeout, "max-pending-timeout", o.MaxPendingTimeout,
		"How long a sandbox of a pool may be Pending before it counts as failing to start, for scaleStrategy.maxUnavailable and the condition ScalingLimited. Values are clamped to 15s..3590s.")
	fs.DurationVar(&o.RecycleTimeout, "recycle-timeout", o.RecycleTimeout,
		"How long it may take to recycle a sandbox, from the request until its new pod is ready. One that takes longer is given up.")
	fs.StringVar((*string)(&o.ClaimEvents), "claim-events", string(o.ClaimEvents),
		"Which claims get events, each a write to the cluster's etcd: None, those Waiting for sandboxes, or All.")
	fs.BoolVar(&o.ManageCertificates, "manage-certificates", o.ManageCertificates,
		"Make, rotate and publish the certificates of the install. Otherwise the admin provides them.")
	o.Certificates.AddFlags(fs)
	fs.BoolVar(&o.ManageEncryptionKeys, "manage-encryption-keys", o.ManageEncryptionKeys,
		"Make and rotate the keys that sandlot-apiserver encrypts its store with, in the namespace of the certificates. Otherwise the admin provides them.")
	o.EncryptionKeys.AddFlags(fs)
	fs.BoolVar(&o.Simulate, "simulate-sandboxes", o.Simulate,
		"Let sandboxes become Running without pods, and do the work of the garbage collector. For use without a cluster.")
	fs.DurationVar(&o.SimulatedStartDelay, "simulated-start-delay", o.SimulatedStartDelay,
		"How long a simulated sandbox takes to become Running.")
}

// Validate tells what is wrong with the options.
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
