// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// controllerName is also the name of the lease and of who reports events.
	controllerName = "sandlot-certificates"

	maxBackoff = time.Minute
)

// New returns a manager of its own that looks after the certificates. It must not
// share one with controllers of Sandlot's kinds: those start when their caches have
// everything, for which Sandlot's API must answer, for which it needs its
// certificate.
func New(cfg *rest.Config, o Options) (ctrl.Manager, error) {
	return newManager(cfg, o, clock.RealClock{})
}

func newManager(cfg *rest.Config, o Options, clk clock.PassiveClock) (ctrl.Manager, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.LeaderElectionNamespace == "" {
		o.LeaderElectionNamespace = o.Namespace
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	log.SetLogger(klog.Background()) // see package manager
	mgr, err := ctrl.NewManager(rest.AddUserAgent(rest.CopyConfig(cfg), controllerName), ctrl.Options{
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
		LeaderElectionID:              controllerName,
		LeaderElectionReleaseOnCancel: true, // the process ends with the manager
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		// A process may run more than one manager.
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("building the manager of certificates: %w", err)
	}
	r := &reconciler{
		reader: mgr.GetAPIReader(), writer: mgr.GetClient(), recorder: mgr.GetEventRecorder(controllerName),
		clock: clk, options: o,
		authorities: map[string]authority{}, warned: map[string]time.Time{},
	}
	for _, a := range o.authorities() {
		r.authorities[a.name] = a
	}
	if err := r.register(mgr); err != nil {
		return nil, fmt.Errorf("registering controller %s: %w", controllerName, err)
	}
	return mgr, nil
}

func (r *reconciler) register(mgr ctrl.Manager) error {
	events := handler.EnqueueRequestsFromMapFunc(r.concerned)
	b := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1, // warned has no lock
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				50*time.Millisecond, maxBackoff),
		}).
		// In an empty namespace there is nothing to watch that could wake us.
		WatchesRawSource(source.Func(r.all))
	for _, o := range r.watched() {
		changes, err := watchOne(mgr, o.kind, o.namespace, o.name, r.concerned)
		if err != nil {
			return err
		}
		b = b.WatchesRawSource(changes)
	}
	if r.options.EtcdMembers > 0 {
		// That a Pod comes or goes matters, not what becomes of it meanwhile.
		b = b.WatchesMetadata(&corev1.Pod{}, events, builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		}))
	}
	return b.Complete(r)
}

// all queues every authority once.
func (r *reconciler) all(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	for name := range r.authorities {
		q.Add(requestFor(name))
	}
	return nil
}

// concerned returns the authorities that an object is about.
func (r *reconciler) concerned(_ context.Context, object client.Object) []reconcile.Request {
	var requests []reconcile.Request
	kind := object.GetObjectKind().GroupVersionKind().Kind
	for _, a := range r.authorities {
		name := object.GetName()
		if kind == "Pod" && a.restarts ||
			kind == "Secret" && (name == a.signer || a.signs(name)) ||
			kind == "ConfigMap" && name == a.bundle ||
			kind == apiServiceGVK.Kind && slices.Contains(a.apiServices, name) {
			requests = append(requests, requestFor(a.name))
		}
	}
	return requests
}

func requestFor(authority string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: authority}}
}

// watched is an object whose changes matter.
type watched struct {
	kind            schema.GroupVersionKind
	namespace, name string
}

// watched returns all that the authorities read, but Pods.
func (r *reconciler) watched() []watched {
	var all []watched
	for _, a := range r.options.authorities() {
		for _, name := range a.secrets() {
			all = append(all, watched{secretGVK, r.options.Namespace, name})
		}
		all = append(all, watched{configMapGVK, r.options.Namespace, a.bundle})
		for _, name := range a.apiServices {
			all = append(all, watched{apiServiceGVK, "", name})
		}
	}
	return all
}

// watchOne returns the changes of the metadata of one object; namespace is empty where its
// kind has none. Each has a cache of its own, because a right to one name is a right to
// lists of that name alone. The caches have metadata only: keys have no business there.
func watchOne(mgr ctrl.Manager, kind schema.GroupVersionKind, namespace, name string, concerned handler.MapFunc) (source.Source, error) {
	by := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
	if namespace != "" {
		by.Namespaces = map[string]cache.Config{namespace: {}}
	}
	one, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient:       mgr.GetHTTPClient(),
		Scheme:           mgr.GetScheme(),
		Mapper:           mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{metadataOf(kind): by},
	})
	if err == nil {
		err = mgr.Add(one)
	}
	if err != nil {
		return nil, fmt.Errorf("watching %s %s: %w", kind.Kind, name, err)
	}
	return source.Kind(one, client.Object(metadataOf(kind)), handler.EnqueueRequestsFromMapFunc(concerned)), nil
}

func metadataOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

var (
	secretGVK    = corev1.SchemeGroupVersion.WithKind("Secret")
	configMapGVK = corev1.SchemeGroupVersion.WithKind("ConfigMap")
)

// restMapper knows the kinds that are read and written here.
func restMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, apiServiceGVK.GroupVersion()})
	for _, kind := range []string{"ConfigMap", "Pod", "Secret"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(apiServiceGVK, meta.RESTScopeRoot)
	return mapper
}
