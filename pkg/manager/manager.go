// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers"
	"github.com/sandlot-io/sandlot/pkg/controllers/apiwarning"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/pod"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/service"
)

// leaseName is the name of the leader's lease.
const leaseName = "sandlot-controller-manager"

// New returns a manager of all controllers that talks to the API at cfg. It does
// not connect yet: the API may come up later than the manager starts.
func New(cfg *rest.Config, o Options) (ctrl.Manager, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), networkingv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	// controller-runtime has one logger for the process and complains on the
	// terminal if it is not told one. It is klog's, which is the process's too.
	log.SetLogger(klog.Background())

	cfg = clientConfig(cfg, o)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Logger: klog.Background(),
		// The kinds are known, so discovery need not be asked for them.
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return restMapper(), nil },
		Cache: cache.Options{
			// No controller reads them, and they are a good part of an object.
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}:                 pod.CachedPods(),
				&corev1.Service{}:             service.CachedServices(),
				&networkingv1.NetworkPolicy{}: cachedPolicies(),
				&corev1.PodTemplate{}:         cachedPodTemplates(),
			},
			// A read must not start a watch of everything by accident.
			ReaderFailOnMissingInformer: true,
			NewInformer:                 o.newInformer,
		},
		LeaderElection: o.LeaderElect,
		// What keeps the lease waits behind no other request.
		LeaderElectionConfig:    unlimited(cfg),
		LeaderElectionNamespace: o.LeaderElectionNamespace,
		LeaderElectionID:        leaseName,
		// The program ends when the manager does, so the next leader need not wait.
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: "0"}, // addMetrics serves them
		Controller: config.Controller{
			// The names are unique (see controllers.New), but a process may run more
			// than one manager.
			SkipNameValidation: new(true),
			// Sandlot's API may be away for long: to give up on it would end the manager
			// of the certificates too, which the API may be waiting for.
			CacheSyncTimeout: 24 * time.Hour,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}
	// Nothing here blocks or needs to be cancelled: the manager starts it.
	ctx := context.Background()
	for _, c := range controllers.New(mgr.GetClient(), mgr.GetAPIReader(), o.Options) {
		if err := c.Register(ctx, mgr); err != nil {
			return nil, fmt.Errorf("registering controller %s: %w", c.Name(), err)
		}
	}
	return mgr, errors.Join(addHealth(ctx, mgr, o.HealthProbeBindAddress), addMetrics(ctx, mgr, cfg, o))
}

func clientConfig(cfg *rest.Config, o Options) *rest.Config {
	cfg = rest.AddUserAgent(rest.CopyConfig(cfg), "sandlot-controller-manager")
	cfg = unlimited(cfg)
	// What they send of our kinds is JSON all the same: an API server of an earlier version, which there
	// may be while an install is upgraded, takes nothing else.
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if o.KubeAPIQPS > 0 {
		// One for all clients that are made from this: each kind of objects has its own.
		cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(o.KubeAPIQPS, o.KubeAPIBurst)
	}
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return withoutCreateRetries{rt} })
	cfg.WarningHandlerWithContext = apiwarning.Handler(log.NewKubeAPIWarningLogger(log.KubeAPIWarningLoggerOptions{}))
	return cfg
}

func unlimited(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.RateLimiter, cfg.QPS = nil, -1
	return cfg
}

// restMapper knows the kinds that controllers read and write.
func restMapper() meta.RESTMapper {
	gv := v1alpha1.SchemeGroupVersion
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{gv, corev1.SchemeGroupVersion, networkingv1.SchemeGroupVersion})
	for kind, resource := range map[schema.GroupVersionKind][2]string{
		gv.WithKind("Sandbox"):                                      {"sandboxes", "sandbox"},
		gv.WithKind("SandboxClaim"):                                 {"sandboxclaims", "sandboxclaim"},
		gv.WithKind("SandboxSet"):                                   {"sandboxsets", "sandboxset"},
		gv.WithKind("SandboxTemplate"):                              {"sandboxtemplates", "sandboxtemplate"},
		corev1.SchemeGroupVersion.WithKind("Pod"):                   {"pods", "pod"},
		corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"): {"persistentvolumeclaims", "persistentvolumeclaim"},
		corev1.SchemeGroupVersion.WithKind("PodTemplate"):           {"podtemplates", "podtemplate"},
		corev1.SchemeGroupVersion.WithKind("ConfigMap"):             {"configmaps", "configmap"},
		corev1.SchemeGroupVersion.WithKind("Service"):               {"services", "service"},
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"):   {"networkpolicies", "networkpolicy"},
	} {
		version := kind.GroupVersion()
		mapper.AddSpecific(kind, version.WithResource(resource[0]), version.WithResource(resource[1]), meta.RESTScopeNamespace)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	return mapper
}

// newInformer makes the informer of a kind, past the API where it can.
func (o Options) newInformer(lw toolscache.ListerWatcher, kind runtime.Object, resync time.Duration,
	indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	if o.ListerWatcher != nil {
		if direct := o.ListerWatcher(kind); direct != nil {
			lw = direct
		}
	}
	return toolscache.NewSharedIndexInformer(lw, kind, resync, indexers)
}
