// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podnamespace finds the namespace of the pod that this process runs in, which is that of
// the installation.
package podnamespace

import (
	"os"
	"strings"
)

// Variable is the environment variable that has the namespace, by the downward API. Set it as well
// for a program that runs outside a pod, as part of an installation in a cluster.
const Variable = "POD_NAMESPACE"

// tokenFile comes with the token of a pod's service account.
const tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Get returns the namespace that Variable has, or else that of the pod's service account, or
// nothing outside a pod.
func Get() string {
	return get(os.Getenv, tokenFile)
}

func get(getenv func(string) string, file string) string {
	if namespace := getenv(Variable); namespace != "" {
		return namespace
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "" // not in a pod, or in one without a token
	}
	return strings.TrimSpace(string(content))
}
