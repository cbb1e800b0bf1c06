// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// agentCRDs are the definitions of agent-sandbox, by their names: plural and kind.
// Schemas are no part of what is tried here.
var agentCRDs = map[string][2]string{
	"sandboxes.agents.x-k8s.io":                   {"sandboxes", "Sandbox"},
	"sandboxclaims.extensions.agents.x-k8s.io":    {"sandboxclaims", "SandboxClaim"},
	"sandboxtemplates.extensions.agents.x-k8s.io": {"sandboxtemplates", "SandboxTemplate"},
	"sandboxwarmpools.extensions.agents.x-k8s.io": {"sandboxwarmpools", "SandboxWarmPool"},
}

const agentCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s}
spec:
  group: %[2]s
  scope: Namespaced
  names: {plural: %[3]s, kind: %[4]s}
  versions:
  - name: %[5]s
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
`

// agentStored are objects as both lines of versions store them, with what controllers have
// written: the pool with a member, claims of which one continues, and sandboxes without owner.
const agentStored = `
apiVersion: extensions.agents.x-k8s.io/VERSION
kind: SandboxTemplate
metadata:
  name: python
  namespace: default
  labels: {agents.x-k8s.io/sandbox-template-ref-hash: 0d2e8f3c}
spec:
  envVarsInjectionPolicy: Allowed
  networkPolicyManagement: Unmanaged
  podTemplate:
    metadata: {labels: {app: python}}
    spec: {containers: [{name: main, image: python:3, ports: [{containerPort: 8080}]}]}
---
apiVersion: extensions.agents.x-k8s.io/VERSION
kind: SandboxWarmPool
metadata: {name: python-pool, namespace: default, labels: {team: a}, generation: 3}
spec: {replicas: 2, sandboxTemplateRef: {name: python}, updateStrategy: {type: Recreate}}
status: {replicas: 2, readyReplicas: 2, selector: agents.x-k8s.io/warm-pool-sandbox=5a1f0c9b}
---
apiVersion: agents.x-k8s.io/VERSION
kind: Sandbox
metadata:
  name: python-pool-abcde
  namespace: default
  ownerReferences: [{apiVersion: extensions.agents.x-k8s.io/VERSION, kind: SandboxWarmPool, name: python-pool, uid: 5c0de5c0, controller: true}]
  labels: {agents.x-k8s.io/warm-pool-sandbox: 5a1f0c9b, agents.x-k8s.io/sandbox-template-ref-hash: 0d2e8f3c}
spec: {RUNNING, podTemplate: {spec: {containers: [{name: main, image: python:3}]}}}
---
apiVersion: agents.x-k8s.io/VERSION
kind: Sandbox
metadata:
  name: keeper
  namespace: default
  finalizers: [agents.x-k8s.io/kept]
  annotations: {agents.x-k8s.io/pod-name: keeper}
spec:
  RUNNING
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
  podTemplate: {spec: {containers: [{name: main, image: busybox:1, volumeMounts: [{name: data, mountPath: /data}]}]}}
status: {conditions: [{type: Ready, status: "True", reason: DependenciesReady, message: Pod is Ready, lastTransitionTime: "2026-05-01T00:00:00Z"}]}
---
apiVersion: agents.x-k8s.io/VERSION
kind: Sandbox
metadata: {name: sleeper, namespace: default}
spec: {SUSPENDED, podTemplate: {spec: {containers: [{name: main, image: busybox:1}]}}}
---
apiVersion: extensions.agents.x-k8s.io/VERSION
kind: SandboxClaim
metadata:
  name: goes-on
  namespace: default
  BOUND: {agents.x-k8s.io/sandbox-name: python-pool-fghij, team: a}
spec:
  CLAIM
  lifecycle: {shutdownTime: "2099-01-01T00:00:00Z", shutdownPolicy: Delete}
status:
  sandbox: {name: python-pool-fghij, podIPs: [10.0.0.7]}
  conditions: [{type: Ready, status: "True", reason: DependenciesReady, message: Pod is Ready, lastTransitionTime: "2026-05-01T00:00:00Z"}]
---
apiVersion: extensions.agents.x-k8s.io/VERSION
kind: SandboxClaim
metadata: {name: finished, namespace: default}
spec: {CLAIM}
status: {conditions: [{type: Finished, status: "True", reason: PodSucceeded, message: done, lastTransitionTime: "2026-05-01T00:00:00Z"}]}
---
apiVersion: extensions.agents.x-k8s.io/VERSION
kind: SandboxClaim
metadata: {name: expired, namespace: default}
spec: {CLAIM}
status: {conditions: [{type: Ready, status: "False", reason: ClaimExpired, message: Claim expired., lastTransitionTime: "2026-05-01T00:00:00Z"}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: agent-sandbox-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: agent-sandbox-controller, namespace: agent-sandbox-system}
spec:
  selector: {matchLabels: {app: former}}
  template: {metadata: {labels: {app: former}}, spec: {containers: [{name: main, image: former:1}]}}
`

// agentOwned is what the former controllers made for a Sandbox.
const agentOwned = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-keeper, namespace: default, labels: {agents.x-k8s.io/sandbox-name-hash: 1c2d3e4f}, ownerReferences: [%[1]s]}
spec: {storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: keeper, namespace: default, labels: {agents.x-k8s.io/sandbox-name-hash: 1c2d3e4f}, ownerReferences: [%[1]s]}
spec:
  containers: [{name: main, image: busybox:1, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data-keeper}}]
`

// agentLines are the lines of versions of agent-sandbox: what they store differs in this.
var agentLines = map[string]*strings.Replacer{
	"v0.4": strings.NewReplacer("VERSION", "v1alpha1", "RUNNING", "replicas: 1", "SUSPENDED", "replicas: 0",
		"BOUND", "labels", "CLAIM", "sandboxTemplateRef: {name: python}\n  warmpool: python-pool"),
	"v1.0": strings.NewReplacer("VERSION", "v1beta1", "RUNNING", "operatingMode: Running", "SUSPENDED", "operatingMode: Suspended",
		"BOUND", "annotations", "CLAIM", "warmPoolRef: {name: python-pool}"),
}

// TestMoveFromAgentSandbox moves a cluster from the CRDs of agent-sandbox to Sandlot, by
// the commands of docs/migrate-agent-sandbox.md.
func TestMoveFromAgentSandbox(t *testing.T) {
	t.Parallel()
	for line := range agentLines {
		t.Run(line, func(t *testing.T) { moveFromAgentSandbox(t, line) })
	}
}

func moveFromAgentSandbox(t *testing.T, line string) {
	s := newSite(t)
	s.makeAgentFormer(t, line)
	old := s.pod(t, metav1.NamespaceDefault, "keeper")
	volume := s.volumeClaim(t)
	book := openPage(t, "docs/migrate-agent-sandbox.md", s.Kubeconfig())

	book.run(t, "export")
	if out := book.run(t, "rehearse"); strings.Contains(out, "not as it is") || !strings.Contains(out, "sandboxwarmpool.extensions.agents.x-k8s.io/python-pool created") {
		t.Errorf("the rehearsal says:\n%s", out)
	}
	book.run(t, "stop", "volumes")
	book.run(t, "remove")
	s.install(t, controlplane.SandlotOptions{Replicas: 1})
	book.run(t, "import")

	const ns = metav1.NamespaceDefault
	claim := s.awaitAgent(t, agentClaims, ns, "goes-on", isAgentBound)
	if name := text(claim, "status", "sandbox", "name"); !strings.HasPrefix(name, "python-pool-") || name == "python-pool-fghij" {
		t.Errorf("the claim has sandbox %q", name)
	}
	if when := text(claim, "spec", "lifecycle", "shutdownTime"); when != "2099-01-01T00:00:00Z" {
		t.Errorf("the claim ends at %q", when)
	}
	if pool := text(claim, "spec", "warmPoolRef", "name"); pool != "python-pool" {
		t.Errorf("the claim is of pool %q", pool)
	}
	expect.FullPool(t, s, ns, "python-pool", 2)
	keeper := s.awaitAgent(t, agentSandboxes, ns, "keeper", isAgentReady)
	if now := s.pod(t, ns, "keeper"); now.UID == old.UID || !metav1.IsControlledBy(now, keeper) {
		t.Errorf("the sandbox has the pod %s of %v, before it was %s", now.UID, now.OwnerReferences, old.UID)
	}
	if now := s.volumeClaim(t); now.UID != volume.UID || now.DeletionTimestamp != nil {
		t.Errorf("the sandbox has the volume claim %s (%v), before it was %s", now.UID, now.DeletionTimestamp, volume.UID)
	}
	s.awaitAgent(t, agentSandboxes, ns, "sleeper", func(sandbox *unstructured.Unstructured) error {
		if suspended := agentCondition(sandbox, "Suspended"); suspended == nil || suspended.Status != metav1.ConditionTrue {
			return fmt.Errorf("it is not suspended: %+v", suspended)
		}
		return nil
	})
	pool := s.getAgent(t, agentPools, ns, "python-pool")
	if pool.GetLabels()["team"] != "a" || text(pool, "spec", "updateStrategy", "type") != "Recreate" {
		t.Errorf("the pool is %v", pool.Object)
	}
	list, err := s.agent(t, agentClaims, ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("the claims are %v: %v", list, err)
	}
}

// makeAgentFormer makes what there was before Sandlot.
func (s *site) makeAgentFormer(t *testing.T, line string) {
	t.Helper()
	with := agentLines[line]
	var crds bytes.Buffer
	for name, of := range agentCRDs {
		_, group, _ := strings.Cut(name, ".")
		fmt.Fprintf(&crds, agentCRD, name, group, of[0], of[1], with.Replace("VERSION"))
	}
	s.kubectl(t, crds.String(), "apply", "-f", "-")
	s.kubectl(t, "", "wait", "--for=condition=Established", "crd", "--all", "--timeout=2m")
	stored := with.Replace(agentStored)
	// A flow mapping has its fields in one line.
	stored = strings.ReplaceAll(stored, "{sandboxTemplateRef: {name: python}\n  warmpool: python-pool}", "{sandboxTemplateRef: {name: python}, warmpool: python-pool}")
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // kubectl knows them a moment later
		_, _, err := s.Kubectl(ctx, "", strings.NewReader(stored), "apply", "-f", "-")
		return err
	})
	for _, name := range []string{"finished", "expired"} { // whose status is a subresource
		s.kubectl(t, "", "patch", "sandboxclaims.extensions.agents.x-k8s.io", name, "--subresource=status", "--type=merge", "-p", agentEnded[name])
	}
	uid := s.kubectl(t, "", "get", "sandboxes.agents.x-k8s.io", "keeper", "-o", "jsonpath={.metadata.uid}")
	owner := fmt.Sprintf("{apiVersion: agents.x-k8s.io/%s, kind: Sandbox, name: keeper, uid: %s, controller: true}", with.Replace("VERSION"), uid)
	s.volume(t, metav1.NamespaceDefault, "data-keeper")
	s.kubectl(t, fmt.Sprintf(agentOwned, owner), "apply", "-f", "-")
}

// agentEnded is how claims have ended that stay behind.
var agentEnded = map[string]string{
	"finished": `{"status": {"conditions": [{"type": "Finished", "status": "True", "reason": "PodSucceeded"}]}}`,
	"expired":  `{"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "ClaimExpired"}]}}`,
}
