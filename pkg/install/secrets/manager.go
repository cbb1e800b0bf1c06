// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Name is the name of the lease, and of who reports events.
const Name = "sandlot-certificates"

// maxBackoff is how long a keeper rests at most after an error.
const maxBackoff = time.Minute

// APIService is a kind that is handled without its Go type, which would bring the module
// of the aggregator along.
var APIService = schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}

// ManagerOptions are where the objects are, and who may change them.
type ManagerOptions struct {
	// Namespace has the objects.
	Namespace string
	// LeaderElect lets only one of several instances work.
	LeaderElect bool
	// LeaderElectionNamespace is where the lease of the leader is; empty means
	// Namespace.
	LeaderElectionNamespace string
}

// NewManager returns a manager for keepers alone. They must not share one with the
// controllers of Sandlot's kinds: those start when their caches have everything, for
// which Sandlot's API must answer, for which it needs its certificate and its key.
func NewManager(cfg *rest.Config, o ManagerOptions) (ctrl.Manager, error) {
	if o.LeaderElectionNamespace == "" {
		o.LeaderElectionNamespace = o.Namespace
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	log.SetLogger(klog.Background()) // see package manager
	mgr, err := ctrl.NewManager(rest.AddUserAgent(rest.CopyConfig(cfg), Name), ctrl.Options{
		Scheme: scheme,
		Logger: klog.Background(),
		// Discovery would wait for the very API that waits for its certificate.
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return restMapper(), nil },
		Cache: cache.Options{
			DefaultTransform:            cache.TransformStripManagedFields(),
			ReaderFailOnMissingInformer: true,
			DefaultNamespaces:           map[string]cache.Config{o.Namespace: {}},
		},
		LeaderElection:                o.LeaderElect,
		LeaderElectionNamespace:       o.LeaderElectionNamespace,
		LeaderElectionID:              Name,
		LeaderElectionReleaseOnCancel: true, // the process ends with the manager
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		// A process may run more than one manager.
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("building the manager of certificates and keys: %w", err)
	}
	return mgr, nil
}

// ControllerOptions are those of a keeper: one reconcile at a time.
func ControllerOptions() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: 1,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			50*time.Millisecond, maxBackoff),
	}
}

// restMapper knows the kinds that keepers read and write.
func restMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, APIService.GroupVersion()})
	for _, kind := range []string{"ConfigMap", "Pod", "Secret"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(APIService, meta.RESTScopeRoot)
	return mapper
}
