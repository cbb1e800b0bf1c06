// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fuzzer fills the kinds of the groups with random values that are as the
// server keeps them: with defaults, and with JSON where there is raw JSON.
package fuzzer

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Funcs are the fuzzer functions of the group. Decoding applies defaults, so an
// object without them would come back from a round trip as another one.
func Funcs(serializer.CodecFactory) []any {
	return []any{
		func(claim *v1alpha1.SandboxClaim, c randfill.Continue) {
			c.FillNoCustom(claim)
			v1alpha1.SetObjectDefaults_SandboxClaim(claim)
		},
		func(set *v1alpha1.SandboxSet, c randfill.Continue) {
			c.FillNoCustom(set)
			v1alpha1.SetObjectDefaults_SandboxSet(set)
		},
		func(sandbox *v1alpha1.Sandbox, c randfill.Continue) {
			c.FillNoCustom(sandbox)
			v1alpha1.SetObjectDefaults_Sandbox(sandbox)
		},
		rawTemplate,
		intOrString,
	}
}

// rawTemplate makes a small pod template. Any JSON would do for a round trip; a
// template is also of use to tests that look into it.
func rawTemplate(raw *runtime.RawExtension, c randfill.Continue) {
	encoded, err := v1alpha1.RawTemplate(corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: c.String(0), Image: c.String(0)}}},
	})
	if err != nil {
		panic(err) // Strings always encode.
	}
	*raw = *encoded
}

// intOrString sets the one field that the type names: the other is not encoded.
func intOrString(value *intstr.IntOrString, c randfill.Continue) {
	if c.Bool() {
		*value = intstr.FromInt32(c.Int31())
		return
	}
	*value = intstr.FromString(c.String(0))
}
