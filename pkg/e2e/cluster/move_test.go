// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// formerKinds are what CRDs served before Sandlot, by their resources. Schemas are
// no part of what is tried here.
var formerKinds = map[string]string{
	"checkpoints":           "Checkpoint",
	"globaltrafficpolicies": "GlobalTrafficPolicy",
	"sandboxclaims":         "SandboxClaim",
	"sandboxes":             "Sandbox",
	"sandboxsets":           "SandboxSet",
	"sandboxtemplates":      "SandboxTemplate",
}

const formerCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.agents.kruise.io}
spec:
  group: agents.kruise.io
  scope: %[3]s
  names: {plural: %[1]s, kind: %[2]s}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
`

// formerObjects are what users had there. The set and the sandbox that is claimed
// have what a controller writes as well.
const formerObjects = `
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxSet
metadata: {name: pool, namespace: default, labels: {team: a}}
spec:
  replicas: 3
  updateStrategy: {maxUnavailable: 20%}
  template: {spec: {automountServiceAccountToken: false, containers: [{name: main, image: busybox:1}]}}
status: {replicas: 3, availableReplicas: 3}
---
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxTemplate
metadata: {name: python, namespace: default}
spec: {template: {spec: {containers: [{name: main, image: python:3}]}}}
---
apiVersion: agents.kruise.io/v1alpha1
kind: Sandbox
metadata:
  name: pool-abcde
  namespace: default
  labels: {agents.kruise.io/sandbox-claimed: "false", agents.kruise.io/sandbox-pool: pool}
spec: {template: {spec: {containers: [{name: main, image: busybox:1}]}}}
---
apiVersion: agents.kruise.io/v1alpha1
kind: Sandbox
metadata: {name: keeper, namespace: default, finalizers: [agents.kruise.io/sandbox]}
spec:
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
  template: {spec: {containers: [{name: main, image: busybox:1, volumeMounts: [{name: data, mountPath: /data}]}]}}
status: {phase: Running}
---
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxClaim
metadata: {name: done, namespace: default}
spec: {templateName: pool}
---
apiVersion: agents.kruise.io/v1alpha1
kind: Checkpoint
metadata: {name: kept, namespace: default, finalizers: [agents.kruise.io/checkpoint]}
spec: {sandboxName: keeper}
---
apiVersion: agents.kruise.io/v1alpha1
kind: GlobalTrafficPolicy
metadata: {name: all, finalizers: [agents.kruise.io/policy]}
spec: {selector: {}}
---
apiVersion: v1
kind: Namespace
metadata: {name: sandbox-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: sandbox-controller-manager, namespace: sandbox-system}
spec:
  selector: {matchLabels: {app: former}}
  template: {metadata: {labels: {app: former}}, spec: {containers: [{name: main, image: former:1}]}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: former}
webhooks:
- name: sets.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {service: {name: former, namespace: sandbox-system, path: /validate}}
  rules: [{apiGroups: [agents.kruise.io], apiVersions: ["*"], resources: [sandboxsets], operations: [CREATE, UPDATE]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: somebody-elses}
webhooks:
- name: nothing.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {service: {name: other, namespace: elsewhere}}
  rules: [{apiGroups: [example.com], apiVersions: ["*"], resources: ["*"], operations: [CREATE]}]
`

// formerOwned is what the former controllers made for a Sandbox.
const formerOwned = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-keeper, namespace: default, ownerReferences: [%[1]s]}
spec: {storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata:
  name: keeper
  namespace: default
  labels: {agents.kruise.io/created-by: sandbox}
  ownerReferences: [%[1]s]
spec:
  containers: [{name: main, image: busybox:1, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data-keeper}}]
`

// TestMoveFromCRDs moves a cluster from CRDs of our group to Sandlot, by the
// commands of docs/operations.md, and then uninstalls Sandlot by them.
func TestMoveFromCRDs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.makeFormer(t)
	old := s.pod(t, metav1.NamespaceDefault, "keeper")
	volume := s.volumeClaim(t)
	book := openRunbook(t, s.Kubeconfig(), "artifacts/deploy/default --ignore-not-found",
		filepath.Join(repository(t), "artifacts", "deploy", "local")+" --ignore-not-found")

	book.run(t, "export")
	if out := book.run(t, "rehearse"); strings.Contains(out, "not as it is") || !strings.Contains(out, "sandboxset.agents.kruise.io/pool created") {
		t.Errorf("the rehearsal says:\n%s", out)
	}
	checkRehearsalRefuses(t, book)
	book.run(t, "stop", "volumes")
	book.run(t, "remove")
	installed := s.install(t, controlplane.SandlotOptions{})
	book.run(t, "import")

	expect.FullPool(t, s, metav1.NamespaceDefault, "pool", 3)
	s.claim(t, metav1.NamespaceDefault, builders.Claim("claim", 2))
	expect.FullPool(t, s, metav1.NamespaceDefault, "pool", 3)
	if _, err := s.SandboxTemplates(metav1.NamespaceDefault).Get(t.Context(), "python", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	keeper := s.awaitSandbox(t, metav1.NamespaceDefault, "keeper", isReady)
	if now := s.pod(t, metav1.NamespaceDefault, "keeper"); now.UID == old.UID || now.UID == "" || !metav1.IsControlledBy(now, keeper) {
		t.Errorf("the sandbox has the pod %s of %v, before it was %s", now.UID, now.OwnerReferences, old.UID)
	}
	if now := s.volumeClaim(t); now.UID != volume.UID || now.DeletionTimestamp != nil {
		t.Errorf("the sandbox has the volume claim %s (%v), before it was %s", now.UID, now.DeletionTimestamp, volume.UID)
	}
	if _, err := s.Sandboxes(metav1.NamespaceDefault).Get(t.Context(), "pool-abcde", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the old sandbox of the pool: %v", err)
	}
	webhooks, err := s.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(webhooks.Items) != 1 || webhooks.Items[0].Name != "somebody-elses" {
		t.Errorf("of the webhooks there are %v", webhooks.Items)
	}
	s.uninstall(t, book, installed)
}

// makeFormer makes what there was before Sandlot.
func (s *site) makeFormer(t *testing.T) {
	t.Helper()
	var crds bytes.Buffer
	for resource, kind := range formerKinds {
		scope := "Namespaced"
		if strings.HasPrefix(kind, "Global") {
			scope = "Cluster"
		}
		fmt.Fprintf(&crds, formerCRD, resource, kind, scope)
	}
	s.kubectl(t, crds.String(), "apply", "-f", "-")
	s.kubectl(t, "", "wait", "--for=condition=Established", "crd", "--all", "--timeout=2m")
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // kubectl knows them a moment later
		_, _, err := s.Kubectl(ctx, "", strings.NewReader(formerObjects), "apply", "-f", "-")
		return err
	})
	uid := s.kubectl(t, "", "get", "sandboxes.agents.kruise.io", "keeper", "-o", "jsonpath={.metadata.uid}")
	owner := fmt.Sprintf("{apiVersion: agents.kruise.io/v1alpha1, kind: Sandbox, name: keeper, uid: %s, controller: true}", uid)
	s.volume(t, metav1.NamespaceDefault, "data-keeper")
	s.kubectl(t, fmt.Sprintf(formerOwned, owner), "apply", "-f", "-")
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		pod, err := s.kube.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, "keeper", metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("pod keeper is %+v", pod.Status)
		}
		return err
	})
}

// kubectl runs kubectl as the admin, which has to succeed.
func (s *site) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, _, err := s.Kubectl(t.Context(), "", strings.NewReader(stdin), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// volumeClaim returns the one of the sandbox that is kept.
func (s *site) volumeClaim(t *testing.T) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim, err := s.kube.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Get(t.Context(), "data-keeper", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// checkRehearsalRefuses rehearses with what is not served.
func checkRehearsalRefuses(t *testing.T, book *runbook) {
	t.Helper()
	file := filepath.Join(book.dir, "import-pools.json")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Replace(good, []byte(`"replicas": 3`), []byte(`"replicas": 3, "pauseStrategy": {"type": "Hibernate"}`), 1)
	if err := os.WriteFile(file, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := book.run(t, "rehearse"); !strings.Contains(out, "spec.pauseStrategy.type") || !strings.Contains(out, "import-pools.json: not as it is") {
		t.Errorf("the rehearsal of what is not served says:\n%s", out)
	}
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
}

// uninstall uninstalls Sandlot and requires that nothing is left of it and
// nothing in its way.
func (s *site) uninstall(t *testing.T, book *runbook, installed *controlplane.Sandlot) {
	t.Helper()
	s.makeTemplate(t, metav1.NamespaceDefault, "locked", func(spec *v1alpha1.SandboxTemplateSpec) {
		spec.NetworkPolicyManagement = v1alpha1.NetworkPolicyManaged
	})
	s.makeSandbox(t, metav1.NamespaceDefault, "locked", "", func(sandbox *v1alpha1.Sandbox) {
		sandbox.Spec.Template, sandbox.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "locked"}
	})
	s.awaitSandbox(t, metav1.NamespaceDefault, "locked", isReady)
	s.awaitPolicy(t, metav1.NamespaceDefault, "locked-network-policy", func(*networkingv1.NetworkPolicy) error { return nil })
	book.run(t, "uninstall")
	if err := installed.Stop(); err != nil {
		t.Fatal(err)
	}
	pods, err := s.kube.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) > 0 {
		t.Errorf("pods are left: %v, %v", pods.Items, err)
	}
	policies, err := s.kube.NetworkingV1().NetworkPolicies(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(policies.Items) > 0 {
		t.Errorf("network policies are left: %v, %v", policies.Items, err)
	}
	if left := s.kubectl(t, "", "get", "-A", "-o", "name", "-l", "app.kubernetes.io/part-of=sandlot",
		"clusterroles,clusterrolebindings,roles,rolebindings,flowschemas,priorityclasses,apiservices,namespaces"); left != "" {
		t.Errorf("of the install are left:\n%s", left)
	}
	// A namespace goes only where everything that is discovered answers.
	s.kubectl(t, "", "delete", "namespace", "sandbox-system", "--timeout=3m")
}
