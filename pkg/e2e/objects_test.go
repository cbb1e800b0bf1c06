// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

// Manifests as users write them.
const (
	generatedYAML = `
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxClaim
metadata:
  generateName: job-
spec:
  templateName: pool
  replicas: 2
`
	templateYAML = `
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxTemplate
metadata:
  name: template
spec:
  template:
    spec:
      containers:
      - name: main
        image: busybox:1
`
	sandboxYAML = `
apiVersion: agents.kruise.io/v1alpha1
kind: Sandbox
metadata:
  name: alone
spec:
  template:
    spec:
      containers:
      - name: main
        image: busybox:1
`
)
