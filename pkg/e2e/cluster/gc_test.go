// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestSetDeleted deletes a set: its unused sandboxes and their pods go, and those
// that were claimed stay.
func TestSetDeleted(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 3)
	claim := c.claim(t, ns, builders.Claim("mine", 1))
	expect.FullPool(t, c, ns, "pool", 3)

	if err := c.SandboxSets(ns).Delete(t.Context(), "pool", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	c.awaitOnly(t, ns, expect.Claimed(t, claim, 1)...)
}

// TestClaimDeleted deletes claims: with reclaimPolicy Delete their sandboxes go
// with them, with Retain they stay.
func TestClaimDeleted(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 3)
	kept := c.claim(t, ns, builders.Claim("retain", 2))
	expect.FullPool(t, c, ns, "pool", 3)
	owning := builders.Claim("delete", 2)
	owning.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
	c.claim(t, ns, owning)
	expect.FullPool(t, c, ns, "pool", 3)
	pool := c.unused(t, ns)

	for _, name := range []string{"retain", "delete"} {
		if err := c.SandboxClaims(ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	c.awaitOnly(t, ns, append(pool, expect.Claimed(t, kept, 2)...)...)
}

// TestClaimReleased gives the sandboxes of a claim back, with kubectl: they and their Pods
// go, those of another claim stay.
func TestClaimReleased(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 3)
	released := expect.Claimed(t, c.claim(t, ns, builders.Claim("released", 2)), 2)
	kept := expect.Claimed(t, c.claim(t, ns, builders.Claim("kept", 1)), 1)
	expect.FullPool(t, c, ns, "pool", 3)
	pool := c.unused(t, ns)

	answer := kubectl(t, ns, "{}", "create", "--raw", "/apis/agents.kruise.io/v1alpha1/namespaces/"+ns+"/sandboxclaims/released/release", "-f", "-")
	for _, name := range released {
		if !strings.Contains(answer, `"`+name+`"`) {
			t.Errorf("the answer %s does not name %s", answer, name)
		}
	}

	c.awaitOnly(t, ns, append(pool, kept...)...)
}

// TestOwnersAcross lets objects of the cluster and of ours own each other: the
// garbage collector follows both directions.
func TestOwnersAcross(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 1)
	configMaps := c.kube.CoreV1().ConfigMaps(ns)

	t.Run("a ConfigMap of a sandbox", func(t *testing.T) {
		claim := c.claim(t, ns, builders.Claim("with-config", 1))
		sandbox, err := c.Sandboxes(ns).Get(t.Context(), claim.Status.Sandboxes[0].Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		owner := metav1.NewControllerRef(sandbox, v1alpha1.SchemeGroupVersion.WithKind("Sandbox"))
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "of-sandbox", OwnerReferences: []metav1.OwnerReference{*owner}}}
		if _, err := configMaps.Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Sandboxes(ns).Delete(t.Context(), sandbox.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			_, err := configMaps.Get(ctx, config.Name, metav1.GetOptions{})
			return gone(err)
		})
	})
	t.Run("a claim of a ConfigMap", func(t *testing.T) {
		run, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "run"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		expect.FullPool(t, c, ns, "pool", 1)
		claim := builders.Claim("of-run", 1)
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: run.Name, UID: run.UID}}
		claim.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
		name := c.claim(t, ns, claim).Status.Sandboxes[0].Name
		if err := configMaps.Delete(t.Context(), run.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect.FullPool(t, c, ns, "pool", 1)
		c.awaitOnly(t, ns, c.unused(t, ns)...)
		_, err = c.SandboxClaims(ns).Get(t.Context(), claim.Name, metav1.GetOptions{})
		if err := gone(err); err != nil {
			t.Errorf("the claim of sandbox %s, which is gone: %v", name, err)
		}
	})
}

// TestForegroundDeletion deletes a claim and a set in the foreground: they stay,
// terminating, for as long as one of their sandboxes does.
func TestForegroundDeletion(t *testing.T) {
	t.Parallel()
	const finalizer = "example.com/last-words"
	foreground := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}

	tests := map[string]struct {
		finalizer string // that waits for the sandboxes
		make      func(t *testing.T, c *clients, ns string) (name string, sandboxes []string)
		delete    func(ctx context.Context, c *clients, ns, name string) error
		get       func(ctx context.Context, c *clients, ns, name string) (metav1.Object, error)
	}{
		"claim": {
			finalizer: metav1.FinalizerDeleteDependents,
			make: func(t *testing.T, c *clients, ns string) (string, []string) {
				expect.FilledPool(t, c, ns, 2)
				claim := builders.Claim("owner", 2)
				claim.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
				return "owner", expect.Claimed(t, c.claim(t, ns, claim), 2)
			},
			delete: func(ctx context.Context, c *clients, ns, name string) error {
				return c.SandboxClaims(ns).Delete(ctx, name, foreground)
			},
			get: func(ctx context.Context, c *clients, ns, name string) (metav1.Object, error) {
				return c.SandboxClaims(ns).Get(ctx, name, metav1.GetOptions{})
			},
		},
		"set": {
			finalizer: v1alpha1.FinalizerPool,
			make: func(t *testing.T, c *clients, ns string) (string, []string) {
				expect.FilledPool(t, c, ns, 2)
				return "pool", c.unused(t, ns)
			},
			delete: func(ctx context.Context, c *clients, ns, name string) error {
				return c.SandboxSets(ns).Delete(ctx, name, foreground)
			},
			get: func(ctx context.Context, c *clients, ns, name string) (metav1.Object, error) {
				return c.SandboxSets(ns).Get(ctx, name, metav1.GetOptions{})
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, ns := admin(t), namespace(t)
			owner, sandboxes := tc.make(t, c, ns)
			c.setFinalizers(t, ns, sandboxes[0], `["`+finalizer+`"]`)

			if err := tc.delete(t.Context(), c, ns, owner); err != nil {
				t.Fatal(err)
			}

			expect.Eventually(t.Context(), t, func(ctx context.Context) error {
				_, err := c.Sandboxes(ns).Get(ctx, sandboxes[1], metav1.GetOptions{})
				return gone(err)
			})
			waiting, err := tc.get(t.Context(), c, ns, owner)
			if err != nil || waiting.GetDeletionTimestamp() == nil || !slices.Contains(waiting.GetFinalizers(), tc.finalizer) {
				t.Fatalf("while a sandbox is left: %v, %v", waiting, err)
			}
			held, err := c.Sandboxes(ns).Get(t.Context(), sandboxes[0], metav1.GetOptions{})
			if err != nil || held.DeletionTimestamp == nil {
				t.Fatalf("the sandbox that is left is not terminating: %v, %v", held, err)
			}
			c.setFinalizers(t, ns, sandboxes[0], "null")
			expect.Eventually(t.Context(), t, func(ctx context.Context) error {
				_, err := tc.get(ctx, c, ns, owner)
				return gone(err)
			})
			if _, err := c.Sandboxes(ns).Get(t.Context(), sandboxes[0], metav1.GetOptions{}); gone(err) != nil {
				t.Errorf("the owner was gone before its sandbox: %v", err)
			}
		})
	}
}

// TestOrphanDeletion deletes a set and a claim and keeps what they own.
func TestOrphanDeletion(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	claim := builders.Claim("owner", 2)
	claim.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
	kept := expect.Claimed(t, c.claim(t, ns, claim), 2)
	expect.FullPool(t, c, ns, "pool", 2)
	kept = append(kept, c.unused(t, ns)...)

	kubectl(t, ns, "", "delete", "sandboxset/pool", "sandboxclaim/owner", "--cascade=orphan", "--timeout=120s")

	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		for _, name := range kept {
			sandbox, err := c.Sandboxes(ns).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				t.Fatalf("sandbox %s was to be kept: %v", name, err)
			}
			if len(sandbox.OwnerReferences) > 0 {
				return fmt.Errorf("sandbox %s still has owners: %v", name, sandbox.OwnerReferences)
			}
		}
		return nil
	})
	c.awaitOnly(t, ns, kept...)
}

// unused returns the names of the sandboxes that the set "pool" holds.
func (c *clients) unused(t testing.TB, namespace string) []string {
	t.Helper()
	owner, err := c.SandboxSets(namespace).Get(t.Context(), "pool", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.Sandboxes(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], owner) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// awaitOnly waits until a namespace has these sandboxes, each with its Pod, and no
// other sandboxes or Pods. Those that are to stay must be there all the time.
func (c *clients) awaitOnly(t testing.TB, namespace string, want ...string) {
	t.Helper()
	slices.Sort(want)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		sandboxes, err := c.Sandboxes(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pods, err := c.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		haveSandboxes, havePods := []string{}, []string{}
		for _, sandbox := range sandboxes.Items {
			haveSandboxes = append(haveSandboxes, sandbox.Name)
			if sandbox.DeletionTimestamp != nil && slices.Contains(want, sandbox.Name) {
				t.Fatalf("sandbox %s is being deleted", sandbox.Name)
			}
		}
		for _, pod := range pods.Items {
			havePods = append(havePods, pod.Name)
			if pod.DeletionTimestamp != nil && slices.Contains(want, pod.Name) {
				t.Fatalf("the pod of sandbox %s is being deleted", pod.Name)
			}
		}
		for _, name := range want {
			if !slices.Contains(haveSandboxes, name) || !slices.Contains(havePods, name) {
				t.Fatalf("%s was to stay; there are sandboxes %v and pods %v", name, haveSandboxes, havePods)
			}
		}
		if len(haveSandboxes) != len(want) || len(havePods) != len(want) {
			return fmt.Errorf("there are sandboxes %v and pods %v, want %v", haveSandboxes, havePods, want)
		}
		return nil
	})
}

func (c *clients) setFinalizers(t testing.TB, namespace, sandbox, finalizers string) {
	t.Helper()
	patch := []byte(`{"metadata":{"finalizers":` + finalizers + `}}`)
	if _, err := c.Sandboxes(namespace).Patch(t.Context(), sandbox, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatalf("setting the finalizers of sandbox %s: %v", sandbox, err)
	}
}

var errStillThere = errors.New("it is still there")

// gone turns the error of a get around: there has to be nothing.
func gone(err error) error {
	switch {
	case err == nil:
		return errStillThere
	case apierrors.IsNotFound(err):
		return nil
	}
	return err
}
