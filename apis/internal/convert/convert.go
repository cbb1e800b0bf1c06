// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package convert registers conversions between the kinds of agent-sandbox and those of
// agents.kruise.io/v1alpha1, the hub, which are what is stored.
package convert

import (
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// Pair returns what registers the conversions of one kind in both directions.
func Pair[V, H any](toHub func(in *V, out *H), fromHub func(in *H, out *V)) func(*runtime.Scheme) error {
	return func(scheme *runtime.Scheme) error {
		if err := register(scheme, toHub); err != nil {
			return err
		}
		return register(scheme, fromHub)
	}
}

func register[A, B any](scheme *runtime.Scheme, convert func(in *A, out *B)) error {
	return scheme.AddConversionFunc((*A)(nil), (*B)(nil), func(in, out any, _ conversion.Scope) error {
		convert(in.(*A), out.(*B))
		return nil
	})
}

// Each converts the items of a list; none stay none.
func Each[A, B any](items []A, convert func(in *A, out *B)) []B {
	if items == nil {
		return nil
	}
	out := make([]B, len(items))
	for i := range items {
		convert(&items[i], &out[i])
	}
	return out
}
