// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"os"
	"strings"
)

const (
	// namespaceVariable has the namespace of the pod, by the downward API.
	namespaceVariable = "POD_NAMESPACE"
	// namespaceFile comes with the token of a pod's service account.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// podNamespace is the namespace of the pod that this process runs in, or empty where
// it cannot be told: by the variable, which may be looked up with getenv, or else the
// file.
func podNamespace(getenv func(string) string, file string) string {
	if namespace := getenv(namespaceVariable); namespace != "" {
		return namespace
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "" // not in a pod, or in one without a token
	}
	return strings.TrimSpace(string(content))
}
