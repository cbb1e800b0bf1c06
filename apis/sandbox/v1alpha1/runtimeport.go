// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"net/url"
	"strconv"

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
	if !meta.IsStatusConditionFalse(sandbox.Status.Conditions, SandboxConditionRuntimeInitialized) {
		return false
	}
	if port == DefaultRuntimePort {
		return true
	}
	for _, key := range []string{AnnotationRuntimeURL, AnnotationE2BEnvdURL} {
		u, err := url.Parse(sandbox.Annotations[key])
		if err != nil {
			continue
		}
		of := u.Port()
		if of == "" {
			of = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		if of == strconv.Itoa(port) {
			return true
		}
	}
	return sandbox.Annotations[AnnotationRuntimeTLSPort] == strconv.Itoa(port)
}
