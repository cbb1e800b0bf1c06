// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/ownerrefs"
	"github.com/sandlot-io/sandlot/pkg/apiserver/quota"
	"github.com/sandlot-io/sandlot/pkg/store/snapshot"
)

const (
	// EtcdPrefix begins the keys of everything that is stored.
	EtcdPrefix = "/sandlot"

	// maxRequestBodyBytes leaves room below etcd's limit of 1.5 MiB for what is
	// added to an object on its way (defaults, managed fields, escapes), so that
	// too large an object is refused as such and not by a failing write.
	maxRequestBodyBytes = 1 << 20

	// Claims may wait inside their request for sandboxes, which costs little more
	// than a goroutine, so many more may be in flight than in a server whose
	// requests are all work.
	maxRequestsInFlight         = 1000
	maxMutatingRequestsInFlight = 4000

	// maxSyncWindow leaves time to answer within the 34 seconds that the generic
	// server gives a create.
	maxSyncWindow = 30 * time.Second

	// maxWaitingCreates is some more than half of the requests that a kube-apiserver with
	// its default limits handles at a time of the priority level of claims, which are 103.
	// The others are for claims that find stock.
	maxWaitingCreates = 60

	watchTermination = 5 * time.Second

	// kubeAPIQPS and kubeAPIBurst are beyond what claims of one server take: quotas are
	// charged for many at once.
	kubeAPIQPS   = 1000
	kubeAPIBurst = 2000
)

// Options are what the command line says about the API server.
type Options struct {
	ServerRun      *genericoptions.ServerRunOptions
	Etcd           *genericoptions.EtcdOptions
	SecureServing  *genericoptions.SecureServingOptions
	Authentication *genericoptions.DelegatingAuthenticationOptions
	Authorization  *genericoptions.DelegatingAuthorizationOptions
	Audit          *genericoptions.AuditOptions
	Features       *genericoptions.FeatureOptions
	CoreAPI        *genericoptions.CoreAPIOptions
	Admission      *genericoptions.AdmissionOptions
	Traces         *genericoptions.TracingOptions

	// EmbeddedEtcdDir is the data folder of an etcd inside this process. It is for
	// the caller to start it and to put its endpoints into Etcd before Config.
	EmbeddedEtcdDir string
	// EmbeddedEtcdQuota bounds its data, in bytes; 0 is its default.
	EmbeddedEtcdQuota int64
	// SyncWindow is how long a create of a claim may wait for sandboxes.
	SyncWindow time.Duration
	// ClaimLimits bound what claims may ask for and bring.
	ClaimLimits ClaimLimits
	// WriteLimits limit the bytes that are written to etcd for each namespace and user.
	WriteLimits WriteLimits
	// MaxWaitingCreates is how many creates of claims wait at the same time; 0 is what
	// leaves the seats of other claims free, in kube-apiserver and here.
	MaxWaitingCreates int
	// DisableClaimObservations keeps the server from noting on claims of agent-sandbox
	// when they were seen and ready, and in which trace.
	DisableClaimObservations bool
	// AllowedLabelDomains are the domains of the labels that claims of agent-sandbox may
	// put on their pods.
	AllowedLabelDomains []string
	// StrictAgentSandboxClaims refuses claims of agent-sandbox that are stored with a
	// condition against them otherwise.
	StrictAgentSandboxClaims bool
	// ServeSnapshots lets who may get /sandlot/snapshot have all that is in etcd.
	ServeSnapshots bool
	// Runtimes are the certificates for agent-runtimes.
	Runtimes Runtimes
	// KubeAPIQPS and KubeAPIBurst limit the requests to the cluster a second. Authentication and
	// authorization have limits of their own, and reads of the Pods of sandboxes have seats of
	// their own at kube-apiserver instead.
	KubeAPIQPS   float32
	KubeAPIBurst int
	// Alone makes a server without a cluster even where one could be found.
	Alone bool

	// format is the format in which the codec of Etcd encodes.
	format *apiserver.StorageFormat
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	format := &apiserver.StorageFormat{}
	storage := storagebackend.NewDefaultConfig(EtcdPrefix, format.Codec())
	storage.EncodeVersioner = runtime.NewMultiGroupVersioner(v1alpha1.SchemeGroupVersion, schema.GroupKind{Group: v1alpha1.GroupName})

	serving := genericoptions.NewSecureServingOptions()
	serving.BindPort = 6443
	serving.ServerCert.CertDirectory = "" // without certificates, make them in memory
	// The clients of an aggregated server are a few proxies that multiplex the
	// requests of all clients, including watches, on few connections. Go's client keeps up to 4 MiB
	// of each that its own client does not read, and 1 GiB of a connection, after which no answer
	// gets through on it: so many streams cannot take that.
	serving.HTTP2MaxStreamsPerConnection = 240

	run := genericoptions.NewServerRunOptions()
	run.MaxRequestBodyBytes = maxRequestBodyBytes
	run.MaxRequestsInFlight = maxRequestsInFlight
	run.MaxMutatingRequestsInFlight = maxMutatingRequestsInFlight
	run.ShutdownWatchTerminationGracePeriod = watchTermination

	o := &Options{
		ServerRun:           run,
		Etcd:                genericoptions.NewEtcdOptions(storage),
		SecureServing:       serving,
		Authentication:      genericoptions.NewDelegatingAuthenticationOptions(),
		Authorization:       genericoptions.NewDelegatingAuthorizationOptions(),
		Audit:               genericoptions.NewAuditOptions(),
		Features:            genericoptions.NewFeatureOptions(),
		CoreAPI:             genericoptions.NewCoreAPIOptions(),
		Admission:           genericoptions.NewAdmissionOptions(),
		Traces:              genericoptions.NewTracingOptions(),
		SyncWindow:          apiserver.DefaultSyncWindow,
		ClaimLimits:         NewClaimLimits(),
		WriteLimits:         NewWriteLimits(),
		AllowedLabelDomains: []string{validation.DefaultLabelDomain},
		KubeAPIQPS:          kubeAPIQPS,
		KubeAPIBurst:        kubeAPIBurst,
		format:              format,
	}
	o.Etcd.DefaultStorageMediaType = runtime.ContentTypeProtobuf
	ownerrefs.AddTo(o.Admission)
	quota.AddTo(o.Admission)
	o.Authentication.RemoteKubeConfigFileOptional = true
	o.Authentication.CacheTTL = tokenTTL
	o.Authorization.RemoteKubeConfigFileOptional = true
	o.Authorization.AllowCacheTTL = allowedTTL
	o.Authorization.DenyCacheTTL = deniedTTL
	o.Authorization.AlwaysAllowPaths = slices.Clone(healthPaths)
	return o
}

// AddFlags adds the flags of all options to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.ServerRun.AddUniversalFlags(fs)
	o.Etcd.AddFlags(fs)
	fs.Lookup("storage-media-type").Usage = "" +
		"Media type in which objects are stored: application/vnd.kubernetes.protobuf or application/json. Both can be read. " +
		"Protobuf is written once all API servers of the store can read it. " +
		"If all API servers are set to JSON, objects that are stored as protobuf are written again."
	o.SecureServing.AddFlags(fs)
	o.Authentication.AddFlags(fs)
	o.Authorization.AddFlags(fs)
	o.Audit.AddFlags(fs)
	o.Features.AddFlags(fs)
	o.CoreAPI.AddFlags(fs)
	o.Admission.AddFlags(fs)
	o.Traces.AddFlags(fs)

	fs.StringVar(&o.EmbeddedEtcdDir, "embedded-etcd-dir", o.EmbeddedEtcdDir, ""+
		"Data directory of an etcd inside this process, which replaces --etcd-servers. It is created if it does not exist. For a single replica only.")
	fs.Int64Var(&o.EmbeddedEtcdQuota, "embedded-etcd-quota-backend-bytes", o.EmbeddedEtcdQuota, ""+
		"Storage quota of the embedded etcd in bytes. When it is exceeded, writes are rejected until objects are deleted. "+
		"0 means 8 GiB. This process keeps the stored objects in memory, so the quota has to fit its memory limit.")
	fs.BoolVar(&o.ServeSnapshots, "serve-snapshots", o.ServeSnapshots, ""+
		"Serve snapshots of etcd for backups to users with the right to get the path "+snapshot.Path+". "+
		"Use it only if etcd stores nothing else.")
	fs.DurationVar(&o.SyncWindow, "sync-window", o.SyncWindow, ""+
		"Maximum time that the creation of a SandboxClaim waits for Sandboxes before the response is sent with those that were bound. "+
		"The claim is then completed in the background. The timeout of the request limits it as well.")
	o.ClaimLimits.AddFlags(fs)
	o.WriteLimits.AddFlags(fs)
	o.Runtimes.AddFlags(fs)
	fs.StringSliceVar(&o.AllowedLabelDomains, "allowed-label-domains", o.AllowedLabelDomains, ""+
		"Domains of the labels that SandboxClaims of extensions.agents.x-k8s.io may set on their pods, including subdomains.")
	fs.BoolVar(&o.StrictAgentSandboxClaims, "strict-agent-sandbox-claims", o.StrictAgentSandboxClaims, ""+
		"Reject SandboxClaims of extensions.agents.x-k8s.io that their pool or template does not allow. "+
		"Otherwise they are stored and their condition Ready has the reason, as in agent-sandbox. "+
		"The header \"Sandlot-Strict: true\" enables it for one request.")
	fs.IntVar(&o.MaxWaitingCreates, "max-waiting-creates", o.MaxWaitingCreates, ""+
		"Maximum number of create requests of SandboxClaims that wait at the same time. Further ones are answered with Claiming immediately. "+
		"0 means a part of the requests in flight: half of the mutating ones of a server without a cluster, "+
		"and in a cluster a twelfth of all but at most 60, so that kube-apiserver has seats for other claims.")
	fs.Float32Var(&o.KubeAPIQPS, "kube-api-qps", o.KubeAPIQPS, ""+
		"Maximum number of requests per second to the cluster for quotas, templates and watches. Authentication, authorization and reads of Pods are not limited.")
	fs.IntVar(&o.KubeAPIBurst, "kube-api-burst", o.KubeAPIBurst, ""+
		"Number of requests to the cluster that may exceed --kube-api-qps in a burst.")
	fs.BoolVar(&o.DisableClaimObservations, "disable-claim-observability-annotations", o.DisableClaimObservations, ""+
		"Do not add the annotations to SandboxClaims of agent-sandbox that record when they were first observed and first Ready, and their trace.")
}

// Complete fills in what other options imply. Call it once, after the flags are
// parsed and before Validate.
func (o *Options) Complete() error {
	if err := o.ServerRun.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("feature gates: %w", err)
	}
	// One cluster is meant by all three, unless someone says otherwise.
	files := []*string{&o.CoreAPI.CoreAPIKubeconfigPath, &o.Authentication.RemoteKubeConfigFile, &o.Authorization.RemoteKubeConfigFile}
	first := ""
	for _, file := range files {
		if first == "" {
			first = *file
		}
	}
	for _, file := range files {
		if *file == "" {
			*file = first
		}
	}
	return nil
}

// Validate returns all errors of the options.
func (o *Options) Validate() error {
	var errs []error
	errs = append(errs, o.ServerRun.Validate()...)
	errs = append(errs, o.validateEtcd()...)
	errs = append(errs, o.SecureServing.Validate()...)
	if o.SecureServing.BindPort == 0 && o.SecureServing.Listener == nil {
		errs = append(errs, errors.New("--secure-port must not be 0: the API would not be served"))
	}
	errs = append(errs, o.Authentication.Validate()...)
	errs = append(errs, o.Authorization.Validate()...)
	errs = append(errs, o.Audit.Validate()...)
	errs = append(errs, o.Features.Validate()...)
	errs = append(errs, o.CoreAPI.Validate()...)
	errs = append(errs, o.Admission.Validate()...)
	errs = append(errs, o.Traces.Validate()...)
	if o.SyncWindow < 0 || o.SyncWindow > maxSyncWindow {
		errs = append(errs, fmt.Errorf("--sync-window must be between 0s and %s", maxSyncWindow))
	}
	errs = append(errs, o.ClaimLimits.Validate()...)
	errs = append(errs, o.WriteLimits.Validate()...)
	errs = append(errs, o.Runtimes.Validate()...)
	if wrong := validation.ValidateLabelDomains(o.AllowedLabelDomains, field.NewPath("--allowed-label-domains")); len(wrong) > 0 {
		errs = append(errs, wrong.ToAggregate())
	}
	if o.KubeAPIQPS <= 0 || o.KubeAPIBurst < 1 {
		errs = append(errs, errors.New("--kube-api-qps and --kube-api-burst must be positive"))
	}
	if o.MaxWaitingCreates < 0 {
		errs = append(errs, errors.New("--max-waiting-creates must not be negative"))
	}
	if !o.hasCluster() {
		errs = append(errs, o.validateAlone()...)
	}
	return utilerrors.NewAggregate(errs)
}

// waitingCreates is how many creates of claims wait at the same time.
func (o *Options) waitingCreates() int {
	run := o.ServerRun
	switch {
	case o.MaxWaitingCreates > 0:
		return o.MaxWaitingCreates
	case !o.hasCluster():
		return max(1, run.MaxMutatingRequestsInFlight/2)
	}
	return max(1, min(maxWaitingCreates, (run.MaxRequestsInFlight+run.MaxMutatingRequestsInFlight)/12))
}

func (o *Options) validateEtcd() []error {
	etcd := *o.Etcd
	servers := etcd.StorageConfig.Transport.ServerList
	switch {
	case o.EmbeddedEtcdQuota < 0:
		return []error{errors.New("--embedded-etcd-quota-backend-bytes must not be negative")}
	case o.EmbeddedEtcdQuota > 0 && o.EmbeddedEtcdDir == "":
		return []error{errors.New("--embedded-etcd-quota-backend-bytes is of the etcd that --embedded-etcd-dir starts")}
	case o.EmbeddedEtcdDir != "" && len(servers) > 0:
		return []error{errors.New("--etcd-servers and --embedded-etcd-dir exclude each other")}
	case o.EmbeddedEtcdDir != "":
		etcd.StorageConfig.Transport.ServerList = []string{"embedded"} // known when it is started
	case len(servers) == 0:
		return []error{errors.New("one of --etcd-servers and --embedded-etcd-dir is required")}
	}
	var errs []error
	if media := etcd.DefaultStorageMediaType; media != runtime.ContentTypeProtobuf && media != runtime.ContentTypeJSON {
		errs = append(errs, fmt.Errorf("--storage-media-type must be %s or %s", runtime.ContentTypeProtobuf, runtime.ContentTypeJSON))
	}
	if len(etcd.EtcdServersOverrides) > 0 {
		// A claim and its sandboxes are written in one transaction.
		errs = append(errs, errors.New("--etcd-servers-overrides is not supported: all resources must be in one etcd"))
	}
	return append(errs, etcd.Validate()...)
}

// validateAlone refuses what would silently have no effect without a cluster.
func (o *Options) validateAlone() []error {
	var errs []error
	if clientCert := o.Authentication.ClientCert; clientCert.ClientCA == "" && clientCert.CAContentProvider == nil {
		errs = append(errs, errors.New("without a cluster (--kubeconfig, or running in one) --client-ca-file is required, because no client could authenticate"))
	}
	if len(o.Admission.EnablePlugins) > 0 || o.Admission.ConfigFile != "" {
		errs = append(errs, errors.New("--enable-admission-plugins and --admission-control-config-file need a cluster (--kubeconfig)"))
	}
	if o.Authentication.RequestHeader.ClientCAFile != "" {
		errs = append(errs, errors.New("--requestheader-client-ca-file needs a cluster (--kubeconfig)"))
	}
	return errs
}

// hasCluster reports whether there is a cluster to ask about users and admission.
func (o *Options) hasCluster() bool {
	if o.Alone {
		return false
	}
	if o.CoreAPI.CoreAPIKubeconfigPath != "" {
		return true
	}
	_, err := rest.InClusterConfig()
	return err == nil
}
