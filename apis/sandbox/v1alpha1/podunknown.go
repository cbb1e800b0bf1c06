// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// UnknownPodTemplateFields returns an error for each field of a pod template that
// PodTemplateSpec lacks or that occurs twice. path is the path of the template in its object.
// The messages are those of strict decoding in Kubernetes:
//
//	unknown field "spec.template.spec.runtimeClasName"
//
// It returns nil for a template that does not decode, which validation reports.
func UnknownPodTemplateFields(raw *runtime.RawExtension, path *field.Path) []error {
	return unknownFields(raw, &corev1.PodTemplateSpec{}, path)
}

// UnknownVolumeClaimFields is like UnknownPodTemplateFields, for volumeClaimTemplates.
func UnknownVolumeClaimFields(claims []runtime.RawExtension, path *field.Path) []error {
	var unknown []error
	for i := range claims {
		unknown = append(unknown, unknownFields(&claims[i], &corev1.PersistentVolumeClaim{}, path.Index(i))...)
	}
	return unknown
}

func unknownFields(raw *runtime.RawExtension, into any, path *field.Path) []error {
	if raw == nil {
		return nil
	}
	data, err := raw.MarshalJSON()
	if err != nil {
		return nil
	}
	unknown, err := kjson.UnmarshalStrict(data, into, kjson.DisallowUnknownFields, kjson.DisallowDuplicateFields)
	if err != nil {
		return nil
	}
	for _, err := range unknown {
		var named kjson.FieldError
		if errors.As(err, &named) {
			named.SetFieldPath(path.String() + "." + named.FieldPath())
		}
	}
	return unknown
}
