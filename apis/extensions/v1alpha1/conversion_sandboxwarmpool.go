// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func warmPoolToHub(in *SandboxWarmPool, out *hub.SandboxSet) {
	v1beta1.WarmPoolToHub(&v1beta1.SandboxWarmPool{
		ObjectMeta: in.ObjectMeta, Status: in.Status,
		Spec: v1beta1.SandboxWarmPoolSpec{
			Replicas: in.Spec.Replicas, SandboxTemplateRef: in.Spec.SandboxTemplateRef, UpdateStrategy: in.Spec.UpdateStrategy,
		},
	}, out)
}

func warmPoolFromHub(in *hub.SandboxSet, out *SandboxWarmPool) {
	var pool v1beta1.SandboxWarmPool
	v1beta1.WarmPoolFromHub(in, &pool)
	out.ObjectMeta, out.Status = pool.ObjectMeta, pool.Status
	out.Spec = SandboxWarmPoolSpec{
		Replicas: pool.Spec.Replicas, SandboxTemplateRef: pool.Spec.SandboxTemplateRef, UpdateStrategy: pool.Spec.UpdateStrategy,
	}
}
