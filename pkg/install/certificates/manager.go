// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sandlot-io/sandlot/pkg/install/secrets"
)

// controllerName is the name of the controller, and of who reports events.
const controllerName = secrets.Name

// AddTo lets the manager look after the certificates.
func AddTo(mgr ctrl.Manager, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	r := &reconciler{
		objects:  &objects{&secrets.Store{Reader: mgr.GetAPIReader(), Writer: mgr.GetClient(), Namespace: o.Namespace}, o},
		recorder: mgr.GetEventRecorder(controllerName),
		clock:    clock.RealClock{}, options: o,
		authorities: map[string]authority{}, warned: map[string]time.Time{},
	}
	for _, a := range o.authorities() {
		r.authorities[a.name] = a
	}
	if err := r.register(mgr); err != nil {
		return fmt.Errorf("registering controller %s: %w", controllerName, err)
	}
	return nil
}

func (r *reconciler) register(mgr ctrl.Manager) error {
	events := handler.EnqueueRequestsFromMapFunc(r.concerned)
	b := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		WithOptions(secrets.ControllerOptions()). // warned has no lock
		// In an empty namespace there is nothing to watch that could wake us.
		WatchesRawSource(source.Func(r.all))
	for _, o := range r.watched() {
		changes, err := secrets.Watch(mgr, o.kind, o.namespace, o.name, r.concerned)
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
			kind == secrets.APIService.Kind && slices.Contains(a.apiServices, name) {
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
			all = append(all, watched{secrets.APIService, "", name})
		}
	}
	return all
}

var (
	secretGVK    = corev1.SchemeGroupVersion.WithKind("Secret")
	configMapGVK = corev1.SchemeGroupVersion.WithKind("ConfigMap")
)
