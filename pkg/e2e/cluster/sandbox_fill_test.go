// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestFillWrites counts what it costs the API to bring sandboxes from nothing to
// Ready: to our store three writes each, and the status of the set; to the
// cluster's, one create of a pod.
func TestFillWrites(t *testing.T) {
	t.Parallel()
	n := expect.Many(80, 200)
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, int32(n))

	ours, _ := writesIn(t, ns, ownLogs()...)
	theirs, _ := writesIn(t, ns, plane.AuditLog())
	t.Logf("writes to our store: %v", ours)
	t.Logf("writes to the cluster's API, the aggregated among them: %v", theirs)
	for _, check := range []struct {
		where string
		have  map[write]int
		what  write
		want  int
	}{
		{"our store", ours, write{"create", "sandboxes"}, n},
		{"our store", ours, write{"patch", "sandboxes"}, 0},
		{"the cluster", theirs, write{"create", "pods"}, n},
		{"the cluster", theirs, write{"patch", "pods"}, 0},
		{"the cluster", theirs, write{"delete", "pods"}, 0},
	} {
		if got := check.have[check.what]; got != check.want {
			t.Errorf("%s %s in %s: %d, want %d", check.what.verb, check.what.resource, check.where, got, check.want)
		}
	}
	// Pending and Running; a sandbox whose pod is faster than the first write needs
	// one only.
	status := write{"patch", "sandboxes/status"}
	if got := ours[status]; got > 2*n {
		t.Errorf("%d writes of the status of %d sandboxes", got, n)
	}
	// Each write that meets another version is one in vain, and one more to come.
	refused := conflictsIn(t, ns, ownLogs()...)
	t.Logf("conflicts in our store: %v", refused)
	if got := refused[status]; got*20 > ours[status] {
		t.Errorf("%d writes of the status met another version, of %d that did not", got, ours[status])
	}
	list, err := c.kube.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != n {
		t.Errorf("%d pods, %v", len(list.Items), err)
	}
}
