// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const (
	injectableTemplate = `{"spec":{"containers":[{"name":"main","image":"busybox:1","env":[{"name":"MODE","value":"template"}],
		"volumeMounts":[{"name":"scratch","mountPath":"/scratch"}]}],"volumes":[{"name":"scratch","emptyDir":{}}]}}`
	// injectedSecret stands in what the claim adds, and nowhere else.
	injectedSecret = "hush-4711"
)

// TestWhatAClaimAdds reaches the pod: a variable, one that replaces the template's,
// and a volume. The value of a variable is in no event and in no answer.
func TestWhatAClaimAdds(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeTemplate(t, ns, "python", func(spec *v1alpha1.SandboxTemplateSpec) {
		of(injectableTemplate)(spec)
		spec.EnvVarsInjectionPolicy = v1alpha1.InjectionOverrides
		spec.VolumeClaimTemplatesPolicy = v1alpha1.InjectionAllowed
		spec.VolumeClaimTemplatesOptions = &v1alpha1.VolumeClaimTemplatesOptions{StorageClassNames: []string{""}}
	})
	claim := claimOf("adds", "python", 1)
	claim.Spec.Env = []v1alpha1.SandboxClaimEnvVar{
		{Name: "TOKEN", Value: injectedSecret}, {Name: "MODE", Value: "claim", ContainerName: "main"},
	}
	claim.Spec.VolumeClaimTemplates = []runtime.RawExtension{{
		Raw: []byte(`{"metadata":{"name":"scratch"},"spec":{"storageClassName":"","resources":{"requests":{"storage":"1Mi"}}}}`),
	}}
	claim.Spec.CreateOnNoStock = new(true)
	answered := make(chan error, 1)
	go func() { // the answer waits for the sandbox, and that for its volume
		_, err := c.SandboxClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{})
		answered <- err
	}()
	var name string
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		list, err := c.Sandboxes(ns).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelClaimName + "=" + claim.Name})
		if err != nil || len(list.Items) != 1 {
			return errors.Join(err, fmt.Errorf("claim %s has not one sandbox", claim.Name))
		}
		name = list.Items[0].Name
		return nil
	})
	c.volume(t, ns, "scratch-"+name)
	if err := <-answered; err != nil {
		t.Fatalf("claiming: %v", err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		done, err := c.SandboxClaims(ns).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil || done.Status.ClaimedReplicas != 1 {
			return errors.Join(err, fmt.Errorf("claim %s does not have its sandbox", claim.Name))
		}
		return nil
	})
	pod := c.pod(t, ns, name)
	want := []corev1.EnvVar{{Name: "MODE", Value: "claim"}, {Name: "TOKEN", Value: injectedSecret}}
	if env := pod.Spec.Containers[0].Env; len(env) != 2 || env[0] != want[0] || env[1] != want[1] {
		t.Errorf("the pod has %v, want %v", env, want)
	}
	if volumes := pod.Spec.Volumes; len(volumes) != 1 || volumes[0].PersistentVolumeClaim == nil ||
		volumes[0].PersistentVolumeClaim.ClaimName != "scratch-"+name {
		t.Errorf("the pod has volumes %+v", volumes)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.kube.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "scratch-"+name, metav1.GetOptions{})
		return err
	})

	refused := claimOf("refused", "python", 1)
	refused.Spec.CreateOnNoStock = new(true)
	refused.Spec.Env = []v1alpha1.SandboxClaimEnvVar{{Name: "TOKEN", Value: injectedSecret, ContainerName: "other"}}
	_, err := c.SandboxClaims(ns).Create(t.Context(), refused, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), `spec.env[0].containerName: Not found: "other"`) || strings.Contains(err.Error(), injectedSecret) {
		t.Errorf("a claim for a container that is not there: %v", err)
	}
	events, err := c.kube.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events.Items {
		if strings.Contains(event.Message, injectedSecret) {
			t.Errorf("an event tells a value: %s", event.Message)
		}
	}
}
