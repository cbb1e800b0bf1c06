// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
)

// DefaultRuntimePort is the port of the agent-runtime of a sandbox, envd for instance, where no URL
// says another.
const DefaultRuntimePort = 49983

// RuntimeTokenHeader is the header that has the access token in requests to an agent-runtime.
const RuntimeTokenHeader = "X-Access-Token"

// IsClosedRuntimePort reports whether a port of a sandbox is one of ClosedRuntimePorts.
func IsClosedRuntimePort(sandbox *Sandbox, port int) bool {
	return slices.Contains(ClosedRuntimePorts(sandbox), port)
}

// ClosedRuntimePorts returns the ports of a sandbox to which nothing may be forwarded: its
// agent-runtime listens there, and RuntimeInitialized is False. Such a runtime may have no access
// token, because its container was restarted or its pod is new, so it takes commands from everyone
// and a token from the first caller.
func ClosedRuntimePorts(sandbox *Sandbox) []int {
	if !meta.IsStatusConditionFalse(sandbox.Status.Conditions, SandboxConditionRuntimeInitialized) {
		return nil
	}
	return slices.Sorted(maps.Keys(runtimePaths(sandbox)))
}

// HasRuntimeToken reports whether the agent-runtime of a sandbox has an access token, or is to get one.
func HasRuntimeToken(sandbox *Sandbox) bool {
	return sandbox.Annotations[AnnotationRuntimeTokenID] != "" ||
		meta.FindStatusCondition(sandbox.Status.Conditions, SandboxConditionRuntimeInitialized) != nil
}

// RuntimeProbePath returns a path that the agent-runtime at a port of a sandbox serves only with its
// access token; "" if nothing listens there that has a token. A container that was restarted has
// a runtime without one, which serves the path to everyone, before the status of the sandbox says so.
func RuntimeProbePath(sandbox *Sandbox, port int) string {
	if !meta.IsStatusConditionTrue(sandbox.Status.Conditions, SandboxConditionRuntimeInitialized) && sandbox.Annotations[AnnotationRuntimeTokenID] == "" {
		return ""
	}
	return runtimePaths(sandbox)[port]
}

// runtimePaths returns, by the ports at which the agent-runtime of a sandbox listens, the path at which it
// has its environment variables: /envs below its URL.
func runtimePaths(sandbox *Sandbox) map[int]string {
	const path = "/envs"
	paths := map[int]string{DefaultRuntimePort: path}
	add := func(port, base string) {
		if number, err := strconv.Atoi(port); err == nil {
			paths[number] = strings.TrimSuffix(base, "/") + path
		}
	}
	add(RuntimeTLSPort(sandbox), "")
	for _, key := range []string{AnnotationE2BEnvdURL, AnnotationRuntimeURL} {
		if u, err := url.Parse(sandbox.Annotations[key]); err == nil {
			add(cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]), u.EscapedPath())
		}
	}
	return paths
}

// RuntimeTLSPort returns the port of the agent-runtime of a sandbox that speaks TLS, as an annotation of the
// sandbox says, or of its pod template; "" if neither does, or if the template cannot be read.
func RuntimeTLSPort(sandbox *Sandbox) string {
	if port := sandbox.Annotations[AnnotationRuntimeTLSPort]; port != "" || sandbox.Spec.Template == nil {
		return port
	}
	raw, err := json.Marshal(sandbox.Spec.Template)
	if err != nil {
		return ""
	}
	var template struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if json.Unmarshal(raw, &template) != nil {
		return ""
	}
	return template.Metadata.Annotations[AnnotationRuntimeTLSPort]
}
