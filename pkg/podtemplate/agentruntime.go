// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"crypto/sha256"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	// agentRuntime is what spec.runtimes of a sandbox names where it has an agent-runtime.
	agentRuntime = "agent-runtime"
	// runtimeContainer is the name of the init container of a pod template that brings one
	// by itself.
	runtimeContainer = "runtime"
)

// HasAgentRuntime reports whether a sandbox has an agent-runtime, which its claim sets up:
// its runtimes name one, or its pod template has an init container named runtime. A
// template that the sandbox only refers to is not looked at.
func HasAgentRuntime(sb *v1alpha1.Sandbox) bool {
	return NamesAgentRuntime(sb.Spec.Runtimes) || BringsAgentRuntime(sb.Spec.Template)
}

// NamesAgentRuntime reports whether there is an agent-runtime among runtimes.
func NamesAgentRuntime(runtimes []v1alpha1.RuntimeConfig) bool {
	return slices.ContainsFunc(runtimes, func(r v1alpha1.RuntimeConfig) bool { return r.Name == agentRuntime })
}

// BringsAgentRuntime reports whether a pod template brings an agent-runtime by itself. It
// reads the template, so who asks often asks a Cache. nil, and what is no
// pod template, brings none.
func BringsAgentRuntime(template *runtime.RawExtension) bool {
	if template == nil {
		return false
	}
	var read struct {
		Spec struct {
			InitContainers []struct {
				Name string `json:"name"`
			} `json:"initContainers"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(template.Raw, &read); err != nil {
		return false
	}
	for _, container := range read.Spec.InitContainers {
		if container.Name == runtimeContainer {
			return true
		}
	}
	return false
}

// BringsAgentRuntime is like the function of that name, and reads each template once.
func (c *Cache) BringsAgentRuntime(template *runtime.RawExtension) bool {
	if template == nil {
		return false
	}
	key := sha256.Sum256(template.Raw)
	if known, ok := c.bringsRuntime.Get(key); ok {
		return known.(bool)
	}
	brings := BringsAgentRuntime(template)
	c.bringsRuntime.Add(key, brings)
	return brings
}
