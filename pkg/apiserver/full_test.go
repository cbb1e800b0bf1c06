// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// startSmall starts an etcd with a small quota, of which fill leaves nothing.
func startSmall(t *testing.T) (etcd testutil.Option, fill func()) {
	t.Helper()
	config := testserver.NewTestConfig(t)
	config.QuotaBackendBytes = 16 << 20
	client := testserver.RunEtcd(t, config)
	return testutil.WithEtcd(client.Endpoints()), func() {
		t.Helper()
		for range 64 {
			_, err := client.KV.Put(t.Context(), "/filler", strings.Repeat("x", 1<<20))
			if errors.Is(err, rpctypes.ErrNoSpace) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		t.Fatal("64 MiB went into 16 MiB")
	}
}

// isFull reports whether an error says that there is no space.
func isFull(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError && strings.Contains(status.Status().Message, "space")
}

// A create in a full etcd fails at once, having written nothing: it does not look for an
// outcome that is known.
func TestCreateInAFullStore(t *testing.T) {
	t.Parallel()
	etcd, fill := startSmall(t)
	s, kv, set := startTapped(t, 3, etcd, withoutWaiting(), withoutEtcdUsage())
	// The guard that this one used is there for the next.
	if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "before", 9, func(c *v1alpha1.SandboxClaim) {
		waits(c)
		c.Spec.Allocation = v1alpha1.AllocationAllOrNothing
	})); err != nil {
		t.Fatal(err)
	}
	if err := claimsOf(s).Delete(t.Context(), "before", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	fill()
	for name, claim := range map[string]*v1alpha1.SandboxClaim{
		"bound":   testutil.Claim(set, "one", 3, fails),
		"waiting": testutil.Claim(set, "one", 9, func(c *v1alpha1.SandboxClaim) { waits(c); c.Spec.Allocation = v1alpha1.AllocationAllOrNothing }),
	} {
		t.Run(name, func(t *testing.T) {
			sent := 0
			kv.onAttempts(func(i int, all attempts) (*clientv3.TxnResponse, error) {
				sent = i + 1
				return all[i].send()
			})
			if _, err := s.CreateOnce(t.Context(), "default", claim); !isFull(err) || sent != 1 {
				t.Errorf("the answer after %d transactions is %v", sent, err)
			}
			if _, err := claimsOf(s).Get(t.Context(), "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the claim: %v", err)
			}
			if n := bound(t, s); n != 0 {
				t.Errorf("%d sandboxes are bound", n)
			}
		})
	}
}

// Sandboxes can be deleted in a full etcd, also those that have the finalizer of a pause.
// What another finalizer holds is still held.
func TestDeleteInAFullStore(t *testing.T) {
	t.Parallel()
	etcd, fill := startSmall(t)
	s := testutil.Start(t, etcd, withoutEtcdUsage())
	set := s.Set(t, "default", "pool", 10)
	finalizers := [][]string{nil, {v1alpha1.FinalizerSandbox}, {v1alpha1.FinalizerSandbox}, {v1alpha1.FinalizerSandbox, "example.com/other"}}
	names := s.StockWith(t, set, 0, len(finalizers), func(i int, sb *v1alpha1.Sandbox) { sb.Finalizers = finalizers[i] })
	fill()
	sandboxes := s.Client.AgentsV1alpha1().Sandboxes("default")
	dry := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	if err := sandboxes.Delete(t.Context(), names[1], dry); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	wrong := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")}
	if err := sandboxes.Delete(t.Context(), names[1], wrong); !apierrors.IsConflict(err) {
		t.Errorf("another UID: %v", err)
	}
	label := []byte(`{"metadata":{"labels":{"changed":"since"}}}`)
	if _, err := sandboxes.Patch(t.Context(), names[1], types.MergePatchType, label, metav1.PatchOptions{}); !isFull(err) {
		t.Errorf("a change: %v", err)
	}
	if left, err := sandboxes.List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) != len(names) {
		t.Fatalf("%d sandboxes are left, %v, want all", len(left.Items), err)
	}
	for i, name := range names[:2] {
		if err := sandboxes.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting one with finalizers %v: %v", finalizers[i], err)
		}
	}
	if err := sandboxes.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); !isFull(err) {
		t.Errorf("deleting all, one of which is held: %v", err)
	}
	left, err := sandboxes.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 1 || left.Items[0].Name != names[3] || left.Items[0].DeletionTimestamp != nil {
		t.Errorf("left are %v, %v, want %s, which nothing has changed", left.Items, err, names[3])
	}
}
