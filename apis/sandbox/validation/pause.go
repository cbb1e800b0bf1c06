// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var pauseStrategyTypes = []v1alpha1.PauseStrategyType{v1alpha1.PauseStrategyStop, v1alpha1.PauseStrategyHibernate}

// validatePauseStrategy takes the type Stop, which is also the default.
func validatePauseStrategy(strategy *v1alpha1.PauseStrategy, path *field.Path) field.ErrorList {
	if strategy == nil {
		return nil
	}
	kind := path.Child("type")
	switch strategy.Type {
	case "", v1alpha1.PauseStrategyStop:
		if strategy.HibernateStrategy != nil {
			return field.ErrorList{field.Forbidden(path.Child("hibernateStrategy"), "only with type Hibernate")}
		}
		return nil
	case v1alpha1.PauseStrategyHibernate:
		return field.ErrorList{field.Forbidden(kind, unservedMessage("pausing by Hibernate; use Stop"))}
	default:
		return validateEnum(strategy.Type, pauseStrategyTypes, kind)
	}
}

// validateRetention checks the annotation that says how long a paused sandbox is
// kept. OpenKruise Agents ignores values that it cannot read.
func validateRetention(annotations map[string]string, path *field.Path) field.ErrorList {
	const key = v1alpha1.AnnotationReservePausedSandboxDuration
	value, ok := annotations[key]
	if !ok {
		return nil
	}
	if _, err := v1alpha1.PausedRetention(value); err != nil {
		return field.ErrorList{field.Invalid(path.Key(key), value, err.Error())}
	}
	return nil
}
