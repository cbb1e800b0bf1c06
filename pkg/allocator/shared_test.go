// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
)

// What users of a shared namespace, or of another one, may do to the claims of others.

// TestSandboxesThatOnlyNameAClaim are not the claim's: any user who may make sandboxes
// may write its UID on one.
func TestSandboxesThatOnlyNameAClaim(t *testing.T) {
	tests := map[string]func(*v1alpha1.Sandbox){
		"of another namespace":     func(sb *v1alpha1.Sandbox) { sb.Namespace = "evil" },
		"without the claim's name": func(sb *v1alpha1.Sandbox) { delete(sb.Labels, v1alpha1.LabelClaimName) },
		"without a lock":           func(sb *v1alpha1.Sandbox) { delete(sb.Annotations, v1alpha1.AnnotationLock) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.Feeds.ClaimChanged(claimAt("u", 5))
			trap := heldAt("u", "trap", 6)
			change(trap)
			d.Feeds.SandboxChanged(trap)
			u := d.finisher.unfinished.of("u")
			u.setHeld(u.snapshot(), append(d.shelf.held, trap))
			if held := u.snapshot().held; len(held) != 0 {
				t.Errorf("the claim holds %s", held[0].Name)
			}
			d.Feeds.SandboxChanged(heldAt("u", "mine", 7))
			if held := u.snapshot().held; len(held) != 1 {
				t.Errorf("the claim holds %d, want its own", len(held))
			}
		})
	}
}

// TestDryRunMakesNothing, whatever it asks for.
func TestDryRunMakesNothing(t *testing.T) {
	d := newDesk(t)
	d.shelf.templates["py"] = templateOfPod("py")
	d.supplier.admit = func(context.Context, *v1alpha1.SandboxClaim, []*v1alpha1.Sandbox, int) error {
		t.Error("something is admitted")
		return nil
	}
	next := d.newAttempt(func(c *v1alpha1.SandboxClaim) { warm(10000)(c); orFresh(c) })
	next.finder.dry, next.finder.reservation.room = true, 10000
	if p := d.planned(next); len(p.Made) != 0 || p.Wants.Need != 0 || p.Ends() || next.finder.wouldMake != 10000 {
		t.Errorf("makes %d, would make %d, wants %+v", len(p.Made), next.finder.wouldMake, p.Wants)
	}
}

// TestOneLargeSandbox keeps no claim from the rest of its pool.
func TestOneLargeSandbox(t *testing.T) {
	set := setOf("a", "py")
	d := newDesk(t, set)
	d.shelf.templates["py-"+pods] = templateOfPod("py-" + pods)
	d.stocks("large", set, pods)
	d.sandboxes["large"].Labels["large"] = strings.Repeat("x", candidates.MaxSize)
	d.stocks("small", set, pods)
	if p := d.planned(d.newAttempt(warm(1))); len(p.Bound) != 1 || p.Bound[0].Name != "small" {
		t.Errorf("binds %v", p.Bound)
	}
}
