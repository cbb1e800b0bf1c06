// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	sandboxclient "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/realnode"
)

// story is what a test has for itself: a namespace of the cluster, and clients of an admin.
type story struct {
	*testing.T
	sandboxclient.AgentsV1alpha1Interface
	kube      kubernetes.Interface
	namespace string
}

// begin returns a new namespace, or skips the test where there is no real node.
func begin(t *testing.T) *story {
	t.Helper()
	if missing != nil {
		t.Skip(missing)
	}
	agents, err := versioned.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	s := &story{T: t, AgentsV1alpha1Interface: agents.AgentsV1alpha1(), kube: kube}
	s.namespace = s.makeNamespace()
	return s
}

// makeNamespace returns the name of a namespace that is deleted after the test.
func (s *story) makeNamespace() string {
	s.Helper()
	namespaces := s.kube.CoreV1().Namespaces()
	made, err := namespaces.Create(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: strings.ToLower(s.Name()) + "-"}}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), expect.Patience) // that of the test has ended
		defer cancel()
		if err := namespaces.Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
			s.Error(err)
		}
	})
	s.eventually(func(ctx context.Context) error {
		_, err := s.kube.CoreV1().ServiceAccounts(made.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return made.Name
}

func (s *story) eventually(check func(context.Context) error) {
	s.Helper()
	expect.Eventually(s.Context(), s.T, check)
}

// template is a pod template that has an agent-runtime.
func (s *story) template() *runtime.RawExtension {
	s.Helper()
	mount := corev1.VolumeMount{Name: "sandlot-runtime", MountPath: "/opt/sandlot"}
	raw, err := json.Marshal(map[string]any{"spec": corev1.PodSpec{
		InitContainers: []corev1.Container{{
			Name: "runtime", Image: realnode.RuntimeImage, ImagePullPolicy: corev1.PullNever,
			Args: []string{"install", mount.MountPath}, VolumeMounts: []corev1.VolumeMount{mount},
		}},
		Containers: []corev1.Container{{
			Name: "main", Image: realnode.ShellImage, ImagePullPolicy: corev1.PullNever,
			Command:      []string{mount.MountPath + "/sandlot-runtime", "serve", "--", "sleep", "infinity"},
			VolumeMounts: []corev1.VolumeMount{mount},
		}},
		Volumes: []corev1.Volume{{Name: mount.Name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}})
	if err != nil {
		s.Fatal(err)
	}
	return &runtime.RawExtension{Raw: raw}
}

// fill makes a set with an agent-runtime, and waits until it is full.
func (s *story) fill(name string, replicas int32, changes ...func(*v1alpha1.SandboxSet)) {
	s.Helper()
	set := builders.Set(name, replicas)
	set.Spec.Template = s.template()
	for _, change := range changes {
		change(set)
	}
	if _, err := s.SandboxSets(s.namespace).Create(s.Context(), set, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	expect.FullPool(s, s, s.namespace, name, replicas)
}

// claim claims a sandbox of a set, sets up its runtime, and returns its name.
func (s *story) claim(name, set string) string {
	s.Helper()
	claim, err := s.tryClaim(s.Context(), name, set)
	if err != nil {
		s.Fatal(err)
	}
	return expect.Claimed(s, claim, 1)[0]
}

// tryClaim returns a claim that is completed, or an error.
func (s *story) tryClaim(ctx context.Context, name, set string) (*v1alpha1.SandboxClaim, error) {
	wanted := builders.Claim(name, 1)
	wanted.Spec.TemplateName, wanted.Spec.ReclaimPolicy = set, v1alpha1.ReclaimDelete
	// The pool is refilled at the speed of the machine.
	wanted.Spec.ClaimTimeout = &metav1.Duration{Duration: expect.Patience}
	wanted.Spec.WaitReadyTimeout = &metav1.Duration{Duration: expect.Patience}
	wanted.Spec.EnvVars = map[string]string{"VARIABLE": name}
	if _, err := s.SandboxClaims(s.namespace).Create(ctx, wanted, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	var claim *v1alpha1.SandboxClaim
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, expect.Patience, true, func(ctx context.Context) (done bool, err error) {
		claim, err = s.SandboxClaims(s.namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && claim.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted, err
	})
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", name, err)
	}
	if claim.Status.ClaimedReplicas != 1 {
		return nil, fmt.Errorf("claim %s has no sandbox: %+v", name, claim.Status)
	}
	return claim, nil
}

// kubectl runs kubectl in the namespace and returns what it wrote to stdout.
func (s *story) kubectl(args ...string) string {
	s.Helper()
	out, err := s.tryKubectl(s.Context(), "", args...)
	if err != nil {
		s.Fatal(err)
	}
	return out
}

func (s *story) tryKubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	out, _, err := plane.Kubectl(ctx, "", strings.NewReader(stdin), append([]string{"--namespace=" + s.namespace}, args...)...)
	return out, err
}
