// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	genericoptions "k8s.io/apiserver/pkg/server/options"
)

// AddTo adds the admission plugin ResourceQuota. As in kube-apiserver it comes
// last: what others refuse must not be charged.
func AddTo(o *genericoptions.AdmissionOptions) {
	resourcequota.Register(o.Plugins)
	o.RecommendedPluginOrder = append(o.RecommendedPluginOrder, resourcequota.PluginName)
	o.Decorators = slices.Insert(o.Decorators, 0, admission.Decorator(admission.DecoratorFunc(decorate)))
}

func decorate(plugin admission.Interface, name string) admission.Interface {
	if validator, ok := plugin.(admission.ValidationInterface); ok && name == resourcequota.PluginName {
		return charging{validator}
	}
	return plugin
}

// charging is the plugin with what it lacks: it charges for several objects at
// once, and it does not give up when another server charges the same quota.
type charging struct {
	admission.ValidationInterface
}

// Validate implements admission.ValidationInterface.
//
// The plugin tries again after a conflict too, but at once and by what it has
// heard of the quota, and several servers charge the same one; the client would
// get a conflict that is none of its own.
func (c charging) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if n, ok := ctx.Value(chargeKey{}).(int); ok {
		if n == 0 {
			return nil
		}
		a = severalAttributes{a, several{a.GetObject(), n}}
	}
	backoff := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 7}
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		last = c.ValidationInterface.Validate(ctx, a, o)
		return !apierrors.IsConflict(last), nil
	})
	if last != nil {
		return last
	}
	return err
}
