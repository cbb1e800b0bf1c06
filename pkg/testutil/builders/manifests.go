// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package builders

const (
	// PoolYAML is a manifest of the set "pool", as users write it.
	PoolYAML = `
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxSet
metadata:
  name: pool
spec:
  replicas: 3
  template:
    spec:
      containers:
      - name: main
        image: busybox:1
`
	// ClaimYAML is a manifest of a claim of that set, as users write it.
	ClaimYAML = `
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxClaim
metadata:
  name: claim
spec:
  templateName: pool
`
)
