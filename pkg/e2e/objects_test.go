// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// newSet returns a set of sandboxes with a small template.
func newSet(name string, replicas int32) *v1alpha1.SandboxSet {
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.Replicas = &replicas
	set.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"main","image":"busybox:1"}]}}`)}
	return set
}

// newClaim returns a claim of the sandboxes of the set "pool" that waits for warm
// ones.
func newClaim(name string, replicas int32) *v1alpha1.SandboxClaim {
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	claim.Spec.TemplateName = "pool"
	claim.Spec.Replicas = &replicas
	claim.Spec.CreateOnNoStock = new(false)
	return claim
}

// Manifests as users write them.
const (
	poolYAML = `
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
	claimYAML = `
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxClaim
metadata:
  name: claim
spec:
  templateName: pool
`
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
