// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const (
	etcdServerSecret = "sandlot-etcd-server"
	etcdClientSecret = "sandlot-etcd-client"
	etcdSignerSecret = "sandlot-etcd-signer"
)

// TestEtcdCertificatesRotate replaces the certificates of etcd and of its client
// while both run, and then their CA, which waits until all have been restarted.
// Sandlot finds its store all the time.
func TestEtcdCertificatesRotate(t *testing.T) {
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 4)
	claimed := 0
	works := func() {
		t.Helper()
		claimed++
		expect.Eventually(t.Context(), t, func(context.Context) error { // etcd may just have been restarted
			err := claimAndDelete(c.config, ns, fmt.Sprintf("claim-%d", claimed))
			if apierrors.IsAlreadyExists(errors.Unwrap(err)) {
				claimed++ // it had been stored, though the answer was lost
			}
			return err
		})
	}
	secrets := c.kube.CoreV1().Secrets(controlplane.Namespace)

	first := c.etcdShows(t, func(*x509.Certificate) bool { return true })
	for _, secret := range []string{etcdServerSecret, etcdClientSecret} {
		if err := secrets.Delete(t.Context(), secret, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	second := c.etcdShows(t, func(cert *x509.Certificate) bool { return !cert.Equal(first) })
	if second.Issuer.String() != first.Issuer.String() {
		t.Errorf("the new certificate is of %s, the one before of %s", second.Issuer, first.Issuer)
	}
	works()
	restartEtcd(t) // all connect again, with what is in the files now
	works()

	// A Pod stands for those of a cluster, where a kubelet would run etcd.
	pod := c.etcdPod(t)
	patch := []byte(`{"metadata":{"annotations":{"sandlot.io/rotate-ca":"now"}}}`)
	if _, err := secrets.Patch(t.Context(), etcdSignerSecret, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		signer, err := secrets.Get(ctx, etcdSignerSecret, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(signer.Data["next.crt"]) == 0 || signer.Annotations["sandlot.io/next-ca-published-at"] == "" {
			return errors.New("the next CA is not published")
		}
		return nil
	})
	restartEtcd(t)
	for i, p := range sandlot.APIServers() {
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := p.Start(t.Context()); err != nil {
			t.Fatalf("replica %d: %v", i, err)
		}
	}
	works()
	if shown := c.etcdShows(t, func(*x509.Certificate) bool { return true }); !shown.Equal(second) {
		t.Error("the next CA signs while there is a Pod that may not know it")
	}
	if err := c.kube.CoreV1().Pods(controlplane.Namespace).Delete(t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	c.etcdShows(t, func(cert *x509.Certificate) bool { return cert.Issuer.String() != second.Issuer.String() })
	works()
	restartEtcd(t)
	works()
}

func restartEtcd(t *testing.T) {
	t.Helper()
	if err := sandlot.Etcd().Stop(); err != nil {
		t.Fatal(err)
	}
	if err := sandlot.Etcd().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// etcdClient is how sandlot-apiserver connects to etcd.
func (c *clients) etcdClient(ctx context.Context) (*tls.Config, error) {
	secret, err := c.kube.CoreV1().Secrets(controlplane.Namespace).Get(ctx, etcdClientSecret, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(secret.Data["ca.crt"])
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted, Certificates: []tls.Certificate{pair}, ServerName: "localhost"}, nil
}

// etcdShows connects to etcd as its client, until it accepts that and shows a
// certificate that is wanted.
func (c *clients) etcdShows(t *testing.T, want func(*x509.Certificate) bool) *x509.Certificate {
	t.Helper()
	var shown *x509.Certificate
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		config, err := c.etcdClient(ctx)
		if err != nil {
			return err
		}
		dialer := tls.Dialer{Config: config}
		conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(sandlot.EtcdURL(), "https://"))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		state := conn.(*tls.Conn).ConnectionState()
		if shown = state.PeerCertificates[0]; !want(shown) {
			return fmt.Errorf("etcd still shows a certificate of %s by %s", shown.NotBefore, shown.Issuer)
		}
		return nil
	})
	return shown
}

// etcdPod makes a Pod that mounts a certificate of etcd, and returns its name.
func (c *clients) etcdPod(t *testing.T) string {
	t.Helper()
	pods := c.kube.CoreV1().Pods(controlplane.Namespace)
	uid := int64(65532)
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "etcd-stand-in-"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: &uid,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "etcd", Image: "etcd",
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
			Volumes: []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: etcdServerSecret},
			}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := pods.Delete(context.Background(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return pod.Name
}
