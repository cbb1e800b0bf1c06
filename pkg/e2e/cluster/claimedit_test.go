// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestMetadataOfAClaimOnItsPod: the pod of a claimed sandbox has the metadata that the claim
// says, also after an edit, loses what the claim does not say any more, and keeps what
// others have put there. It is the same pod all the time.
func TestMetadataOfAClaimOnItsPod(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeTemplate(t, ns, "python", func(s *v1alpha1.SandboxTemplateSpec) {
		s.Template.Raw = []byte(`{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"main","image":"busybox:1"}]}}`)
		s.PodMetadataPolicy = &v1alpha1.PodMetadataPolicy{Labels: []string{"*"}, Annotations: []string{"*"}}
	})
	made := claimOf("mine", "python", 1)
	made.Spec.CreateOnNoStock = new(true)
	made.Spec.Labels = map[string]string{"team": "rl", "run": "1"}
	made.Spec.AdditionalPodMetadata = &v1alpha1.PodMetadata{
		Labels: map[string]string{"tier": "gold"}, Annotations: map[string]string{"example.com/note": "a"},
	}
	claim := c.claim(t, ns, made)
	name := claim.Status.Sandboxes[0].Name
	before := c.pod(t, ns, name)
	if _, err := c.kube.CoreV1().Pods(ns).Patch(t.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"other":"x"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitPodMetadata(t, c, before, "app=x team=rl run=1 tier=gold other=x note=a")
	for _, change := range []struct{ spec, want string }{
		{`{"labels":{"run":null,"team":"ml"},"additionalPodMetadata":{"labels":{"tier":"tin"},"annotations":null}}`, "app=x team=ml run= tier=tin other=x note="},
		{`{"labels":null,"additionalPodMetadata":null}`, "app=x team= run= tier= other=x note="},
	} {
		if _, err := c.SandboxClaims(ns).Patch(t.Context(), claim.Name, types.MergePatchType, []byte(`{"spec":`+change.spec+`}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitPodMetadata(t, c, before, change.want)
	}
	edited, err := c.SandboxClaims(ns).Get(t.Context(), claim.Name, metav1.GetOptions{})
	if err != nil || edited.Status.ObservedGeneration != edited.Generation {
		t.Errorf("the claim is %+v, %v", edited.Status, err)
	}
}

// awaitPodMetadata waits until the metadata of a pod is so.
func awaitPodMetadata(t *testing.T, c *clients, before *corev1.Pod, want string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		pod, err := c.kube.CoreV1().Pods(before.Namespace).Get(ctx, before.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.UID != before.UID {
			return fmt.Errorf("pod %s is another one", pod.Name)
		}
		has := ""
		for _, key := range []string{"app", "team", "run", "tier", "other"} {
			has += key + "=" + pod.Labels[key] + " "
		}
		if has += "note=" + pod.Annotations["example.com/note"]; has != want {
			all, _ := json.Marshal(pod.ObjectMeta)
			return fmt.Errorf("pod %s has %s, want %s: %s", pod.Name, has, want, all)
		}
		return nil
	})
}
