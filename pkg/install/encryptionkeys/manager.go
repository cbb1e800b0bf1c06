// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package encryptionkeys

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
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

// controllerName is the name of the controller.
const controllerName = "sandlot-encryption-keys"

// theKeys is the one request that there is.
var theKeys = reconcile.Request{NamespacedName: types.NamespacedName{Name: Secret}}

// AddTo lets a manager of installobjects look after the keys in a namespace.
func AddTo(mgr ctrl.Manager, namespace string, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	r := &reconciler{
		store:    &secrets.Store{Reader: mgr.GetAPIReader(), Writer: mgr.GetClient(), Namespace: namespace},
		recorder: mgr.GetEventRecorder(secrets.Name),
		clock:    clock.RealClock{}, options: o,
	}
	if err := r.register(mgr, namespace); err != nil {
		return fmt.Errorf("registering controller %s: %w", controllerName, err)
	}
	return nil
}

func (r *reconciler) register(mgr ctrl.Manager, namespace string) error {
	concerned := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{theKeys} }
	b := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		WithOptions(secrets.ControllerOptions()). // warned has no lock
		// Where there is nothing yet, there is nothing to watch that could wake us.
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			q.Add(theKeys)
			return nil
		})).
		// That a Pod comes or goes matters, not what becomes of it meanwhile.
		WatchesMetadata(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(concerned), builder.WithPredicates(
			predicate.NewPredicateFuncs(func(pod client.Object) bool { return pod.GetLabels()[apiServerLabel] == apiServerName }),
			predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }},
		))
	for _, object := range []struct{ kind, name string }{{"Secret", Secret}, {"Secret", CopySecret}, {"ConfigMap", ConfigMap}} {
		changes, err := secrets.Watch(mgr, corev1.SchemeGroupVersion.WithKind(object.kind), namespace, object.name, concerned)
		if err != nil {
			return err
		}
		b = b.WatchesRawSource(changes)
	}
	return b.Complete(r)
}
