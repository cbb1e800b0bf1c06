// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	sandboxclient "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// clients are the clients of one user.
type clients struct {
	config *rest.Config
	sandboxclient.AgentsV1alpha1Interface
	kube kubernetes.Interface
}

// admin returns clients of an admin, through the aggregator.
func admin(t testing.TB) *clients {
	t.Helper()
	return clientsFor(t, plane.Config())
}

// as returns clients of a user with a certificate, through the aggregator. The
// user may do nothing but what grant gives them.
func as(t testing.TB, name string, groups ...string) *clients {
	t.Helper()
	config, err := plane.User(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return clientsFor(t, config)
}

// direct returns the clients of the same user to a replica of our API server,
// past the aggregator.
func (c *clients) direct(t testing.TB, replica int) *clients {
	t.Helper()
	config, err := sandlot.Direct(replica, c.config)
	if err != nil {
		t.Fatal(err)
	}
	return clientsFor(t, config)
}

func clientsFor(t testing.TB, config *rest.Config) *clients {
	t.Helper()
	agents, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &clients{config: config, AgentsV1alpha1Interface: agents.AgentsV1alpha1(), kube: kube}
}

// namespace makes a namespace for a test, in which pods can be created, and
// deletes it after the test.
func namespace(t testing.TB) string {
	t.Helper()
	c := admin(t)
	name := strings.NewReplacer("/", "-", "_", "-").Replace(strings.ToLower(t.Name()))
	wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name[:min(len(name), 40)] + "-"}}
	made, err := c.kube.CoreV1().Namespaces().Create(t.Context(), wanted, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), expect.Patience) // that of the test has ended
		defer cancel()
		if err := c.kube.CoreV1().Namespaces().Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("deleting the namespace: %v", err)
		}
	})
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.kube.CoreV1().ServiceAccounts(made.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return made.Name
}

// grant binds a ClusterRole to a user in a namespace.
func grant(t testing.TB, namespace, clusterRole, user string) {
	t.Helper()
	admin(t).grant(t, namespace, clusterRole, user)
}

// grant is the same by an admin of any cluster.
func (c *clients) grant(t testing.TB, namespace, clusterRole, user string) {
	t.Helper()
	_, err := c.kube.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: clusterRole + "-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("granting %s: %v", clusterRole, err)
	}
}

// kubectl runs kubectl as the admin, in a namespace, and returns what it wrote to
// stdout. It has to succeed.
func kubectl(t testing.TB, namespace, stdin string, args ...string) string {
	t.Helper()
	out, err := tryKubectl(t, "", namespace, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tryKubectl runs kubectl as the user of a kubeconfig (empty is the admin). The
// error says what it wrote to stderr.
func tryKubectl(t testing.TB, kubeconfig, namespace, stdin string, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"--namespace=" + namespace}, args...)
	out, errOut, err := plane.Kubectl(t.Context(), kubeconfig, strings.NewReader(stdin), args...)
	if err == nil && strings.Contains(errOut, "error") {
		return out, fmt.Errorf("kubectl %s wrote to stderr: %s", strings.Join(args, " "), errOut)
	}
	return out, err
}
