// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestControlPlane goes through the life of a control plane without Sandlot.
func TestControlPlane(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func() (*ControlPlane, kubernetes.Interface) {
		t.Helper()
		c, err := Start(t.Context(), Options{Dir: dir, Nodes: 2})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Stop(); err != nil { // again, mostly
				t.Error(err)
			}
		})
		return c, newClient(t, c.Config())
	}
	c, admin := start()

	t.Run("pods", func(t *testing.T) { testPods(t, admin) })
	t.Run("volumes", func(t *testing.T) { testVolumes(t, admin) })
	t.Run("users", func(t *testing.T) { testUsers(t, c) })
	t.Run("namespaces", func(t *testing.T) { testNamespaces(t, admin) })
	t.Run("kubectl", func(t *testing.T) { testKubectl(t, c) })

	serviceAccount, err := c.ServiceAccountKubeconfig(t.Context(), "default", "default")
	if err != nil {
		t.Fatal(err)
	}
	before, err := clientcmd.BuildConfigFromFlags("", serviceAccount)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("restart", func(t *testing.T) {
		if err := c.APIServer().Kill(); err != nil {
			t.Fatal(err)
		}
		if err := c.Etcd().Kill(); err != nil {
			t.Fatal(err)
		}
		for _, p := range []*Process{c.Etcd(), c.APIServer()} {
			if err := p.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		testPods(t, admin)
	})
	t.Run("again", func(t *testing.T) {
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
		for _, p := range c.Processes() {
			if p.Running() {
				t.Errorf("%s runs after the stop", p.Name())
			}
		}
		next, admin := start()
		if next.Config().Host != c.Config().Host {
			t.Errorf("it is at %s now, and was at %s", next.Config().Host, c.Config().Host)
		}
		if _, err := admin.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
			t.Errorf("what was stored is not there: %v", err)
		}
		if _, err := newClient(t, before).Discovery().ServerVersion(); err != nil {
			t.Errorf("the token of a service account does not outlive a restart: %v", err)
		}
		testPods(t, admin)
	})
}

func newClient(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// testPods runs a pod, which gets an address of this machine, and deletes it,
// which does not take its grace period.
func testPods(t *testing.T, client kubernetes.Interface) {
	pods := client.CoreV1().Pods("default")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox:1"}}
	pod.Spec.TerminationGracePeriodSeconds = new(int64(24 * 60 * 60))
	pod, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		got, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ip := net.ParseIP(got.Status.PodIP); got.Status.Phase != corev1.PodRunning || !ip.IsLoopback() || got.Spec.NodeName == "" {
			return fmt.Errorf("it is %+v", got.Status)
		}
		return nil
	})
	if err := pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}

// testUsers checks that users are who they say, and that they may do only what
// they were given the right to.
func testUsers(t *testing.T, c *ControlPlane) {
	alice, err := c.User("alice", "team")
	if err != nil {
		t.Fatal(err)
	}
	path, err := c.ServiceAccountKubeconfig(t.Context(), "default", "default")
	if err != nil {
		t.Fatal(err)
	}
	account, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	for want, config := range map[string]*rest.Config{
		`User "alice"`: alice,
		`User "system:serviceaccount:default:default"`: account,
		`User "system:anonymous"`:                      c.config(),
	} {
		_, err := newClient(t, config).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want that it is forbidden to %s", err, want)
		}
	}
	if _, err := c.ServiceAccountKubeconfig(t.Context(), "default", "nobody"); !apierrors.IsNotFound(err) {
		t.Errorf("a token for a service account that does not exist: %v", err)
	}
}

// testNamespaces deletes a namespace with something in it, and leaves something
// in another one for later.
func testNamespaces(t *testing.T, client kubernetes.Interface) {
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "brief"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for namespace, name := range map[string]string{"brief": "lost", "default": "kept"} {
		if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.CoreV1().Namespaces().Delete(t.Context(), "brief", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		if _, err := client.CoreV1().Namespaces().Get(ctx, "brief", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the namespace is there"), err)
		}
		return nil
	})
}

func testKubectl(t *testing.T, c *ControlPlane) {
	manifest := strings.NewReader(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "from-stdin"}}`)
	out, _, err := c.Kubectl(t.Context(), "", manifest, "create", "-f", "-", "-o", "name")
	if err != nil || strings.TrimSpace(out) != "configmap/from-stdin" {
		t.Errorf("got %q, %v", out, err)
	}
	bob, err := c.UserKubeconfig("bob")
	if err != nil {
		t.Fatal(err)
	}
	_, errOut, err := c.Kubectl(t.Context(), bob, nil, "get", "configmaps")
	if err == nil || !strings.Contains(errOut, `User "bob" cannot list`) || !strings.Contains(err.Error(), `User "bob" cannot list`) {
		t.Errorf("got %q, %v", errOut, err)
	}
}

func TestStartFails(t *testing.T) {
	if _, err := Start(t.Context(), Options{}); err == nil {
		t.Error("it started without a folder")
	}
	_, err := Start(t.Context(), Options{Dir: t.TempDir(), BinDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "make controlplane") {
		t.Errorf("got %v, want what to do without programs", err)
	}
}
