// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"slices"
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestChargedUser checks whom the transactions of a claim count for: its creator, as long as no
// other user has changed the claim.
func TestChargedUser(t *testing.T) {
	for name, test := range map[string]struct {
		identity, want string
	}{
		"not changed":             {`{"user":{"username":"alice"}}`, "alice"},
		"changed by another user": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			set := setOf("a", "py")
			d := newDesk(t, set)
			d.shelf.templates["py-"+pods] = templateOfPod("py-" + pods)
			d.stocks("one", set, pods)
			claim := d.stored(func(c *v1alpha1.SandboxClaim) {
				warm(1)(c)
				c.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: "alice"}
				if test.identity != "" {
					c.Annotations[v1alpha1.AnnotationClaimedByIdentity] = test.identity
				}
			})
			var charged []string
			d.begin = func() Txn {
				return &slip{commit: func(s *slip) error {
					charged = append(charged, s.user)
					s.at(20)
					return nil
				}}
			}
			d.Feeds.ClaimChanged(claim)
			d.reconciler.Next(t.Context())
			if !slices.Equal(charged, []string{test.want}) {
				t.Errorf("the transactions count for %q, want %q", charged, test.want)
			}
		})
	}
}

// TestMetadataCountsForNoUser checks that bringing metadata to the sandboxes of a claim is not
// charged to the creator of the claim: another user may have changed the claim.
func TestMetadataCountsForNoUser(t *testing.T) {
	d := newEditDesk(t, 3)
	d.claim.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: "alice", v1alpha1.AnnotationClaimedByIdentity: "{}"}
	var charged []string
	d.begin = func() Txn {
		return &slip{commit: func(s *slip) error {
			charged = append(charged, s.user)
			return d.commit(s)
		}}
	}
	d.edit("2")
	d.untilRest()
	if len(d.changed) == 0 || len(d.changed[0]) != 3 || slices.ContainsFunc(charged, func(user string) bool { return user != "" }) {
		t.Errorf("wrote %v, which counts for %q", d.changed, charged)
	}
}
