// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	claimrules "github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// TestAChangeOfTimesIsOneWrite: a sandbox whose times change is written once, and what was
// written leaves its controller nothing to write.
func TestAChangeOfTimesIsOneWrite(t *testing.T) {
	s, set := stocked(t, 1)
	name := create(t, s, testutil.Claim(set, "mine", 1, nil)).Status.Sandboxes[0].Name
	observe := func(sb *v1alpha1.Sandbox) {
		status := sb.Status.DeepCopy()
		claimrules.Observe(status, sb.Generation) // as the controller does
		setStatus(t, s, sb, *status)
	}
	sb, err := sandboxes(s).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	observe(sb)
	client, err := clientv3.New(clientv3.Config{Endpoints: s.EtcdServers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	// written is how many times etcd has written the sandbox.
	written := func() int64 {
		t.Helper()
		all, err := client.Get(t.Context(), "/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range all.Kvs {
			if len(kv.Key) > len(name) && string(kv.Key[len(kv.Key)-len(name)-1:]) == "/"+name {
				return kv.Version
			}
		}
		t.Fatalf("etcd has no key that ends in %s", name)
		return 0
	}
	for _, change := range []struct {
		patch    string
		observed bool
	}{
		{fmt.Sprintf(`{"spec":{"shutdownTime":%q}}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)), true},
		{fmt.Sprintf(`{"spec":{"pauseTime":%q,"shutdownTime":null}}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)), true},
		{`{"spec":{"pauseTime":null}}`, true},
		{fmt.Sprintf(`{"spec":{"pauseTime":%q}}`, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)), false},
	} {
		before := written()
		sb, err := sandboxes(s).Patch(t.Context(), name, types.MergePatchType, []byte(change.patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := claimrules.IsObserved(&sb.Status, sb.Generation); got != change.observed {
			t.Errorf("%s: observed is %v: generation %d, %+v", change.patch, got, sb.Generation, sb.Status)
		}
		if n := written() - before; n != 1 {
			t.Errorf("%s: %d writes", change.patch, n)
		}
	}
}
