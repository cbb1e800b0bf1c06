// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// testPolicyOfTokens tries the ways in which a pod of a sandbox comes to a token, by dry
// runs, with the policies of docs/install.md and then with the strict form of it.
func testPolicyOfTokens(t *testing.T, s *site, controllers *clients, meant, others, docs string) {
	t.Helper()
	const denied = "denied request"
	projected := func(source corev1.VolumeProjection) func(*corev1.PodSpec) {
		return func(p *corev1.PodSpec) {
			p.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{DownwardAPI: &corev1.DownwardAPIProjection{}}, source,
				}},
			}}}
		}
	}
	named := corev1.LocalObjectReference{Name: "keys"}
	key := &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named, Key: "k"}}
	pods := map[string]struct {
		change         func(*corev1.PodSpec)
		denied, strict string
	}{
		"nothing":           {change: func(*corev1.PodSpec) {}},
		"a ConfigMap":       {change: projected(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named}})},
		"a projected token": {change: projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}}), denied: "project no token", strict: "project no token"},
		"a projected Secret": {
			change: projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: named}}), strict: denied,
		},
		"a Secret": {change: func(p *corev1.PodSpec) {
			p.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}}}
		}, strict: denied},
		"a Secret of a CSI driver": {change: func(p *corev1.PodSpec) {
			csi := &corev1.CSIVolumeSource{Driver: "csi.example.com", NodePublishSecretRef: &named}
			p.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{CSI: csi}}}
		}, strict: denied},
		"volumes without Secrets": {change: func(p *corev1.PodSpec) {
			p.Volumes = []corev1.Volume{
				{Name: "e", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
			}
		}},
		"a variable of a Secret": {change: func(p *corev1.PodSpec) {
			p.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "K", ValueFrom: key}}
		}, strict: denied},
		"a variable of a Secret, in an init container": {change: func(p *corev1.PodSpec) {
			p.InitContainers = []corev1.Container{{Name: "init", Image: "busybox:1", Env: []corev1.EnvVar{{Name: "K", ValueFrom: key}}}}
		}, strict: denied},
		"all variables of a Secret": {change: func(p *corev1.PodSpec) {
			p.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named}}}
		}, strict: denied},
	}
	try := func(what, denied string, do func(context.Context) error) {
		t.Helper()
		expect.Eventually(t.Context(), t, func(ctx context.Context) error { // a policy takes a moment to be known
			err := do(ctx)
			switch {
			case denied == "" && err != nil:
				return fmt.Errorf("%s: %w", what, err)
			case denied != "" && (!apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), denied)):
				return fmt.Errorf("%s is not denied: %w", what, errors.Join(errors.New("it says"), err))
			}
			return nil
		})
	}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	podWith := func(change func(*corev1.PodSpec)) func(context.Context) error {
		owner := metav1.OwnerReference{APIVersion: "agents.kruise.io/v1alpha1", Kind: "Sandbox", Name: "box", UID: "1", Controller: new(true)}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "box", OwnerReferences: []metav1.OwnerReference{owner}}}
		pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox:1"}}
		pod.Spec.AutomountServiceAccountToken = new(false)
		change(&pod.Spec)
		return func(ctx context.Context) error {
			_, err := controllers.kube.CoreV1().Pods(meant).Create(ctx, pod, dryRun)
			return err
		}
	}
	for what, pod := range pods {
		try(what, pod.denied, podWith(pod.change))
	}
	secretIn := func(ns string, kind corev1.SecretType) func(context.Context) error {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Type: kind}
		secret.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
		return func(ctx context.Context) error {
			_, err := s.kube.CoreV1().Secrets(ns).Create(ctx, secret, dryRun)
			return err
		}
	}
	try("a Secret with a token", "no Secrets with tokens", secretIn(meant, corev1.SecretTypeServiceAccountToken))
	try("a Secret", "", secretIn(meant, corev1.SecretTypeOpaque))
	try("a Secret with a token elsewhere", "", secretIn(others, corev1.SecretTypeServiceAccountToken))

	_, strict, _ := strings.Cut(docs, "```cel no-secrets\n")
	strict, _, found := strings.Cut(strict, "\n```\n")
	if !found {
		t.Fatal("docs/install.md has no strict form")
	}
	policies := s.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // kube-controller-manager writes the status
		policy, err := policies.Get(t.Context(), "sandlot-pods", metav1.GetOptions{})
		if err != nil {
			return err
		}
		policy.Spec.Validations = append(policy.Spec.Validations, admissionregistrationv1.Validation{Expression: strict})
		_, err = policies.Update(t.Context(), policy, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for what, pod := range pods {
		try(what, pod.strict, podWith(pod.change))
	}
}
