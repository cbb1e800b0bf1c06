// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fuzzer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	agentsv1alpha1 "github.com/sandlot-io/sandlot/apis/agents/v1alpha1"
	agentsv1beta1 "github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	extensionsv1alpha1 "github.com/sandlot-io/sandlot/apis/extensions/v1alpha1"
	extensionsv1beta1 "github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// AgentSandboxFuncs are the fuzzer functions of the groups of agent-sandbox, which go with
// Funcs. What the server derives from other fields is so here, too.
func AgentSandboxFuncs(serializer.CodecFactory) []any {
	return []any{
		func(claim *extensionsv1beta1.SandboxClaim, c randfill.Continue) {
			c.FillNoCustom(claim)
			extensionsv1beta1.SetObjectDefaults_SandboxClaim(claim)
		},
		func(template *extensionsv1beta1.SandboxTemplate, c randfill.Continue) {
			c.FillNoCustom(template)
			extensionsv1beta1.SetObjectDefaults_SandboxTemplate(template)
		},
		func(pool *extensionsv1beta1.SandboxWarmPool, c randfill.Continue) {
			c.FillNoCustom(pool)
			extensionsv1beta1.SetObjectDefaults_SandboxWarmPool(pool)
			pool.Status.Selector = extensionsv1beta1.WarmPoolSelector(pool.Name)
		},
		func(claim *extensionsv1alpha1.SandboxClaim, c randfill.Continue) {
			c.FillNoCustom(claim)
			extensionsv1alpha1.SetObjectDefaults_SandboxClaim(claim)
		},
		func(template *extensionsv1alpha1.SandboxTemplate, c randfill.Continue) {
			c.FillNoCustom(template)
			extensionsv1alpha1.SetObjectDefaults_SandboxTemplate(template)
		},
		func(pool *extensionsv1alpha1.SandboxWarmPool, c randfill.Continue) {
			c.FillNoCustom(pool)
			extensionsv1alpha1.SetObjectDefaults_SandboxWarmPool(pool)
			pool.Status.Selector = extensionsv1beta1.WarmPoolSelector(pool.Name)
		},
		func(status *extensionsv1beta1.SandboxClaimStatus, c randfill.Continue) {
			c.FillNoCustom(status)
			status.Conditions = claimConditions(c)
			if len(status.Sandbox.PodIPs) == 0 {
				status.Sandbox.PodIPs = nil // as decoded
			}
		},
		func(sandbox *agentsv1beta1.Sandbox, c randfill.Continue) {
			c.FillNoCustom(sandbox)
			agentsv1beta1.SetObjectDefaults_Sandbox(sandbox)
			sandbox.Spec.OperatingMode = oneOf(c, agentsv1beta1.OperatingModeRunning, agentsv1beta1.OperatingModeSuspended)
			hub := &v1alpha1.Sandbox{}
			agentsv1beta1.SandboxToHub(sandbox, hub)
			sandbox.Status = agentsv1beta1.StatusOf(hub)
		},
		func(sandbox *agentsv1alpha1.Sandbox, c randfill.Continue) {
			c.FillNoCustom(sandbox)
			agentsv1alpha1.SetObjectDefaults_Sandbox(sandbox)
			replicas := oneOf(c, 0, agentsv1alpha1.DefaultReplicas)
			sandbox.Spec.Replicas = &replicas
			hub := &v1alpha1.Sandbox{ObjectMeta: sandbox.ObjectMeta, Spec: v1alpha1.SandboxSpec{Paused: replicas == 0, Service: sandbox.Spec.Service}}
			sandbox.Status = agentsv1alpha1.SandboxStatus{SandboxStatus: agentsv1beta1.StatusOf(hub)}
		},
	}
}

func oneOf[T any](c randfill.Continue, values ...T) T { return values[c.Intn(len(values))] }

// claimConditions makes some of the conditions that a claim has.
func claimConditions(c randfill.Continue) []metav1.Condition {
	var conditions []metav1.Condition
	for _, name := range []string{v1alpha1.ClaimConditionFinished, v1alpha1.ClaimConditionReady} {
		if c.Bool() {
			var condition metav1.Condition
			c.Fill(&condition)
			condition.Type = name
			conditions = append(conditions, condition)
		}
	}
	return conditions
}
