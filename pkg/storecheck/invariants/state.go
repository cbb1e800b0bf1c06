// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// State is what of the objects of a store decides whether the invariants hold. It keeps a
// few hundred bytes of each, and no templates. All objects are of one moment.
type State struct {
	// Partial reports whether objects are missing that are stored. What is said to be gone
	// is not judged then.
	Partial bool

	claims    []claim
	sandboxes []sandbox
	// owners are the objects by their UIDs.
	owners map[types.UID]string
	// twins are objects that have the UID of another.
	twins [][2]string
}

// claim is what decides of a claim.
type claim struct {
	key      types.NamespacedName
	uid      types.UID
	replicas int
	claimed  int
	listed   []v1alpha1.ClaimedSandbox
	deadline time.Time

	completed, deleting, allOrNothing bool
}

// sandbox is what decides of a sandbox.
type sandbox struct {
	key types.NamespacedName
	uid types.UID
	// claim is what it says of the claim that holds it; its UID is empty if there is none.
	claim struct {
		uid  types.UID
		name string
	}
	// controller is the object of ours that is its controller; its UID is empty if there is none.
	controller metav1.OwnerReference

	locked, scalesDown, starting, reserved, deleting, pooled, due bool
	// recycled reports whether it was another claim's before.
	recycled bool
}

// AddClaim adds a claim, of which the defaults are set.
func (s *State) AddClaim(c *v1alpha1.SandboxClaim) {
	s.add("SandboxClaim", c)
	kept := claim{
		key: keyOf(c), uid: c.UID,
		replicas: claims.Replicas(c), claimed: int(c.Status.ClaimedReplicas),
		deadline:     plan.Deadline(c, startOf(c)),
		completed:    c.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted,
		deleting:     c.DeletionTimestamp != nil,
		allOrNothing: claims.AllOrNothing(c),
	}
	for _, listed := range c.Status.Sandboxes {
		kept.listed = append(kept.listed, v1alpha1.ClaimedSandbox{Name: listed.Name, UID: listed.UID})
	}
	s.claims = append(s.claims, kept)
}

// AddSandbox adds a sandbox.
func (s *State) AddSandbox(sb *v1alpha1.Sandbox) {
	s.add("Sandbox", sb)
	owner := sb.Annotations[v1alpha1.AnnotationOwner]
	kept := sandbox{
		key: keyOf(sb), uid: sb.UID,
		locked:     sb.Annotations[v1alpha1.AnnotationLock] != "",
		scalesDown: owner == v1alpha1.OwnerScaleDown,
		starting:   plan.IsStarting(sb),
		reserved:   v1alpha1.IsReservedFailed(sb),
		deleting:   sb.DeletionTimestamp != nil,
		pooled:     v1alpha1.IsInPool(sb),
		due:        sb.Spec.ShutdownTime != nil,
	}
	if !kept.scalesDown {
		kept.claim.uid = types.UID(short(owner))
	}
	kept.claim.name = sb.Labels[v1alpha1.LabelClaimName]
	// It goes back to its pool in one write, and is counted when it is ready there.
	kept.recycled = sb.Status.RecycledCount > 0 || kept.pooled && sb.Status.Phase == v1alpha1.SandboxRecycling
	if controller := metav1.GetControllerOfNoCopy(sb); controller != nil && v1alpha1.OwnerKind(controller) != "" {
		kept.controller = metav1.OwnerReference{Kind: v1alpha1.OwnerKind(controller), Name: short(controller.Name), UID: types.UID(short(string(controller.UID)))}
	}
	s.sandboxes = append(s.sandboxes, kept)
}

// longest is how long a name can be. Kubernetes bounds neither the names and the UIDs in
// owner references nor annotations, all of which users may write.
const longest = validation.DNS1123SubdomainMaxLength

// short returns the text, cut if it is longer than any name.
func short(text string) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…" // and none of the rest in memory
}

// AddSet adds a set.
func (s *State) AddSet(set *v1alpha1.SandboxSet) { s.add("SandboxSet", set) }

// AddTemplate adds a template.
func (s *State) AddTemplate(template *v1alpha1.SandboxTemplate) { s.add("SandboxTemplate", template) }

func (s *State) add(kind string, object metav1.Object) {
	if s.owners == nil {
		s.owners = map[types.UID]string{}
	}
	name, uid := kind+" "+keyOf(object).String(), object.GetUID()
	if other, taken := s.owners[uid]; taken {
		s.twins = append(s.twins, [2]string{other, name})
		return
	}
	s.owners[uid] = name
}

func keyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// startOf is when a claim began.
func startOf(c *v1alpha1.SandboxClaim) time.Time {
	if start := c.Status.ClaimStartTime; start != nil {
		return start.Time
	}
	return c.CreationTimestamp.Time
}

func (c *claim) String() string   { return "SandboxClaim " + c.key.String() }
func (s *sandbox) String() string { return "Sandbox " + s.key.String() }

// bound reports whether a claim holds a sandbox, whether it counts or not: not one that is
// kept for debugging, which is the claim's no more.
func (s *sandbox) bound() bool { return s.claim.uid != "" && !s.reserved }
