// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
)

// DefaultRuntimePort is the port of the agent-runtime of a sandbox, envd for instance, where no URL
// says another.
const DefaultRuntimePort = 49983

// IsClosedRuntimePort reports whether nothing may be forwarded to a port of a sandbox: its
// agent-runtime listens there, and RuntimeInitialized is False. Such a runtime may have no access
// token, because its container was restarted or its pod is new, so it takes commands from everyone
// and a token from the first caller.
func IsClosedRuntimePort(sandbox *Sandbox, port int) bool {
	return meta.IsStatusConditionFalse(sandbox.Status.Conditions, SandboxConditionRuntimeInitialized) && runtimePath(sandbox, port) != ""
}

// RuntimeProbePath returns a path that the agent-runtime at a port of a sandbox serves only with its
// access token; "" if nothing listens there that has a token. A container that was restarted has
// a runtime without one, which serves the path to everyone, before the status of the sandbox says so.
func RuntimeProbePath(sandbox *Sandbox, port int) string {
	if !meta.IsStatusConditionTrue(sandbox.Status.Conditions, SandboxConditionRuntimeInitialized) && sandbox.Annotations[AnnotationRuntimeTokenID] == "" {
		return ""
	}
	return runtimePath(sandbox, port)
}

// runtimePath returns the path at which the agent-runtime at a port of a sandbox has its environment
// variables, /envs below its URL; "" if no agent-runtime listens there.
func runtimePath(sandbox *Sandbox, port int) string {
	const path = "/envs"
	isPort := func(text string) bool {
		number, err := strconv.Atoi(text)
		return err == nil && number == port
	}
	for _, key := range []string{AnnotationRuntimeURL, AnnotationE2BEnvdURL} {
		if u, err := url.Parse(sandbox.Annotations[key]); err == nil {
			if isPort(u.Port()) || u.Port() == "" && isPort(map[string]string{"http": "80", "https": "443"}[u.Scheme]) {
				return strings.TrimSuffix(u.EscapedPath(), "/") + path
			}
		}
	}
	if port == DefaultRuntimePort || isPort(RuntimeTLSPort(sandbox)) {
		return path
	}
	return ""
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
