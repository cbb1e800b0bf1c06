// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// setRuntime says what a runtime is, in the one ConfigMap of the installation.
func (c *clients) setRuntime(t testing.TB, name, text string) {
	t.Helper()
	const config = "sandbox-injection-config"
	patch, err := json.Marshal(map[string]any{"data": map[string]any{name: text}})
	if err != nil {
		t.Fatal(err)
	}
	configs := c.kube.CoreV1().ConfigMaps(controlplane.Namespace)
	_, err = configs.Patch(t.Context(), config, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = configs.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: config}, Data: map[string]string{name: text},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatalf("setting runtime %s: %v", name, err)
	}
}

// TestRuntimes puts runtimes into the pods of a pool. One that is not there yet is
// waited for, and a change of one is for pods that are made later.
func TestRuntimes(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	// Names of this test alone: the ConfigMap is for all tests.
	agent, later := ns+"-agent", ns+"-later"
	if len(later) > 63 {
		t.Fatalf("%s is too long", later)
	}
	agentIs := func(version string) string {
		return `
mainContainer:
  env: [{name: AGENT, value: "` + version + `"}]
  volumeMounts: [{name: tools, mountPath: /tools}]
metadata:
  labels: {agent: "` + version + `"}
spec:
  initContainers: [{name: agent, image: "agent:` + version + `", restartPolicy: Always}]
  volumes: [{name: tools, emptyDir: {}}]
`
	}
	c.setRuntime(t, agent, agentIs("1"))
	set := builders.Set("pool", 2)
	set.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: agent}}
	if _, err := c.SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, c, ns, "pool", 2)
	check := func(name, version string) error {
		pod := c.pod(t, ns, name)
		main := pod.Spec.Containers[0]
		if len(pod.Spec.Containers) != 1 || main.Name != "main" || len(main.Env) != 1 || main.Env[0].Value != version || len(main.VolumeMounts) != 1 ||
			len(pod.Spec.InitContainers) != 1 || pod.Spec.InitContainers[0].Image != "agent:"+version || pod.Labels["agent"] != version {
			return fmt.Errorf("pod %s: labels %v, spec %+v", name, pod.Labels, pod.Spec)
		}
		return nil
	}
	for _, name := range c.unused(t, ns) {
		if err := check(name, "1"); err != nil {
			t.Error(err)
		}
	}

	// The claimed pod learns whose it is, and keeps what the runtime gave it.
	claim := builders.Claim("mine", 1)
	claim.Spec.Labels = map[string]string{"example.com/user": "me"}
	mine := c.claim(t, ns, claim)
	claimed := mine.Status.Sandboxes[0].Name
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if pod := c.pod(t, ns, claimed); pod.Labels["example.com/user"] != "me" || pod.Labels[v1alpha1.LabelOwner] != string(mine.UID) {
			return fmt.Errorf("labels %v", pod.Labels)
		}
		return check(claimed, "1")
	})

	// A change reaches the pods that are made after it: a resumed one, not the pool.
	expect.FullPool(t, c, ns, "pool", 2)
	before := c.unused(t, ns)
	c.setRuntime(t, agent, agentIs("2"))
	c.patchSandbox(t, ns, claimed, `{"spec":{"paused":true}}`)
	c.awaitNoPod(t, ns, claimed)
	c.patchSandbox(t, ns, claimed, `{"spec":{"paused":false}}`)
	c.awaitSandbox(t, ns, claimed, isReady)
	if err := check(claimed, "2"); err != nil {
		t.Error(err)
	}
	for _, name := range before {
		if err := check(name, "1"); err != nil {
			t.Error(err)
		}
	}

	// What is not there is waited for, and so is what makes no sense.
	waiting := c.makeSandbox(t, ns, "box", smallTemplate, func(s *v1alpha1.Sandbox) {
		s.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: agent}, {Name: later}}
	})
	tells := func(reason, text string) func(*v1alpha1.Sandbox) error {
		return func(s *v1alpha1.Sandbox) error {
			if s.Status.Phase != v1alpha1.SandboxPending || !strings.Contains(s.Status.Message, text) || !strings.Contains(s.Status.Message, later) {
				return errors.New("does not tell what it waits for")
			}
			return hasCondition(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, reason)(s)
		}
	}
	c.awaitSandbox(t, ns, "box", tells(v1alpha1.ReasonRuntimeNotFound, controlplane.Namespace+"/sandbox-injection-config"))
	c.awaitEvent(t, waiting, corev1.EventTypeWarning, v1alpha1.ReasonRuntimeNotFound)
	c.setRuntime(t, later, "{spec: [}")
	c.awaitSandbox(t, ns, "box", tells(v1alpha1.ReasonInvalidRuntime, "cannot be put into the pod"))
	c.setRuntime(t, later, "{spec: {hostname: later}}")
	if ready := c.awaitSandbox(t, ns, "box", isReady); ready.Status.Message != "" {
		t.Errorf("message %q", ready.Status.Message)
	}
	if pod := c.pod(t, ns, "box"); pod.Spec.Hostname != "later" || pod.Spec.Containers[0].Env[0].Value != "2" {
		t.Errorf("pod %+v", pod.Spec)
	}
}
