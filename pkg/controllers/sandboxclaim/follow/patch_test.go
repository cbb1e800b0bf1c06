// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"k8s.io/apimachinery/pkg/util/json"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// patched applies the changes to a claim.
func patched(t *testing.T, claim *v1alpha1.SandboxClaim, patch []operation) *v1alpha1.SandboxClaim {
	t.Helper()
	raw, err := json.Marshal(claim)
	if err != nil {
		t.Fatal(err)
	}
	data, err := encode(patch)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := jsonpatch.DecodePatch(data)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = decoded.Apply(raw); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	after := &v1alpha1.SandboxClaim{}
	if err := json.Unmarshal(raw, after); err != nil {
		t.Fatal(err)
	}
	return after
}

func TestMembers(t *testing.T) {
	moved := func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodIP = "new" }
	tests := map[string]struct {
		claim   *v1alpha1.SandboxClaim
		change  func(*v1alpha1.SandboxClaim)
		bound   []*v1alpha1.Sandbox
		want    []string // name and address
		claimed int32
		// writes is how many operations it takes.
		writes int
	}{
		"well":             {claim: claimOf("a", "b"), bound: []*v1alpha1.Sandbox{box("b"), box("a")}, want: []string{"a ip-a", "b ip-b"}, claimed: 2},
		"other addresses":  {claim: claimOf("a", "b", "c"), bound: []*v1alpha1.Sandbox{box("a", moved), box("b", pausedBox), box("c")}, want: []string{"a new", "b ", "c ip-c"}, claimed: 3, writes: 2},
		"gone":             {claim: claimOf("a", "b"), bound: []*v1alpha1.Sandbox{box("b")}, want: []string{"a ", "b ip-b"}, claimed: 2, writes: 1},
		"another's by now": {claim: claimOf("a"), want: []string{"a "}, claimed: 1, writes: 1},
		"a client wrote another UID": {
			claim: claimOf("a"), change: func(c *v1alpha1.SandboxClaim) { c.Status.Sandboxes[0].UID = "other" },
			bound: []*v1alpha1.Sandbox{box("a")}, want: []string{"a ip-a"}, claimed: 1, writes: 2,
		},
		"a client took one": {claim: claimOf("a", "b"), change: func(c *v1alpha1.SandboxClaim) { c.Status.Sandboxes = c.Status.Sandboxes[1:] }, bound: []*v1alpha1.Sandbox{box("a"), box("b")}, want: []string{"b ip-b", "a ip-a"}, claimed: 2, writes: 1},
		"a client took all": {claim: claimOf("a", "b"), change: func(c *v1alpha1.SandboxClaim) { c.Status.Sandboxes, c.Status.ClaimedReplicas = nil, 0 }, bound: []*v1alpha1.Sandbox{box("b"), box("a")}, want: []string{"a ip-a", "b ip-b"}, claimed: 2, writes: 2},
		"a client put one in another's place": {
			claim:  claimOf("a", "b", "c"),
			change: func(c *v1alpha1.SandboxClaim) { c.Status.Sandboxes[0].Name = "z" },
			bound:  []*v1alpha1.Sandbox{box("a"), box("b"), box("c")}, want: []string{"b ip-b", "c ip-c", "a ip-a"}, claimed: 3, writes: 2,
		},
		"what is not counted": {
			claim: claimOf("a"), change: func(c *v1alpha1.SandboxClaim) { c.Spec.Replicas = new(int32(9)) },
			bound: []*v1alpha1.Sandbox{
				box("a"), box("b", annotated(v1alpha1.AnnotationStarting)), box("c", deleting), box("d", ended(v1alpha1.SandboxFailed, "")),
				box("e", func(sb *v1alpha1.Sandbox) { sb.Labels[v1alpha1.LabelReservedFailedSandbox] = "true" }),
			},
			want: []string{"a ip-a"}, claimed: 1,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(tc.claim)
			}
			all := members(tc.claim, tc.bound)
			patch := changes(tc.claim, all, tc.claim.Status.Conditions)
			if writes := max(0, len(patch)-1); writes != tc.writes {
				t.Errorf("%d operations, want %d: %v", writes, tc.writes, patch)
			}
			after := patched(t, tc.claim, patch)
			var got []string
			for _, entry := range after.Status.Sandboxes {
				address := ""
				if len(entry.PodIPs) > 0 {
					address = entry.PodIPs[0]
				}
				if entry.UID == "" {
					t.Errorf("%s has no UID", entry.Name)
				}
				got = append(got, entry.Name+" "+address)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("sandboxes (-want +got):\n%s", diff)
			}
			if after.Status.ClaimedReplicas != tc.claimed {
				t.Errorf("claimedReplicas is %d, want %d", after.Status.ClaimedReplicas, tc.claimed)
			}
			if again := changes(after, members(after, tc.bound), after.Status.Conditions); again != nil {
				t.Errorf("there is still something to do: %v", again)
			}
		})
	}
}

// What is too much for one request is written in several, each of which the server takes.
func TestLargeChanges(t *testing.T) {
	const n = 10000
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("a-set-with-a-name-as-long-as-a-name-of-a-set-can-be-%06d", i))
	}
	claim := claimOf(names...)
	writes := 0
	for ; ; writes++ {
		patch := changes(claim, members(claim, nil), claim.Status.Conditions)
		if patch == nil {
			break
		}
		if data, err := encode(patch); err != nil || len(data) > 1<<19 {
			t.Fatalf("a patch of %d bytes, %v", len(data), err)
		}
		claim = patched(t, claim, patch)
	}
	if writes != n/maxChanges {
		t.Errorf("%d writes for %d sandboxes", writes, n)
	}
}
