// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func warmPoolToHub(in *SandboxWarmPool, out *hub.SandboxSet) {
	v1beta1.WarmPoolToHub(&v1beta1.SandboxWarmPool{
		ObjectMeta: in.ObjectMeta, Spec: v1beta1.SandboxWarmPoolSpec(in.Spec), Status: in.Status,
	}, out)
}

func warmPoolFromHub(in *hub.SandboxSet, out *SandboxWarmPool) {
	var pool v1beta1.SandboxWarmPool
	v1beta1.WarmPoolFromHub(in, &pool)
	out.ObjectMeta, out.Spec, out.Status = pool.ObjectMeta, SandboxWarmPoolSpec(pool.Spec), pool.Status
}
