// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"cmp"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// member is one sandbox that a claim counts.
type member struct {
	// entry is what the claim should say of it.
	entry v1alpha1.ClaimedSandbox
	// at is where the claim lists it, or -1.
	at int
	// sandbox is nil where it does not exist, or is bound to the claim no more.
	sandbox *v1alpha1.Sandbox
}

// members returns what a claim counts, in the order of its list, and after that what a
// client has taken out of the list: what is bound to it, lives and is not there. What a
// client has put into the list cannot be distinguished from a sandbox that is gone,
// so it goes only where the list is too long for the claim.
func members(claim *v1alpha1.SandboxClaim, bound []*v1alpha1.Sandbox) []member {
	byName := make(map[string]*v1alpha1.Sandbox, len(bound))
	for _, sandbox := range bound {
		byName[sandbox.Name] = sandbox
	}
	all := make([]member, 0, len(claim.Status.Sandboxes))
	for i, entry := range claim.Status.Sandboxes {
		sandbox := byName[entry.Name]
		if sandbox != nil && entry.UID != "" && entry.UID != sandbox.UID {
			sandbox = nil
		}
		if sandbox != nil {
			delete(byName, entry.Name)
		}
		entry.PodIPs = addresses(sandbox)
		all = append(all, member{entry: entry, at: i, sandbox: sandbox})
	}
	listed := len(all)
	for _, sandbox := range byName {
		if counts(sandbox) {
			entry := v1alpha1.ClaimedSandbox{Name: sandbox.Name, UID: sandbox.UID, PodIPs: addresses(sandbox)}
			all = append(all, member{entry: entry, at: -1, sandbox: sandbox})
		}
	}
	slices.SortFunc(all[listed:], func(a, b member) int { return cmp.Compare(a.entry.Name, b.entry.Name) })
	return shortened(all, int(ptr.Deref(claim.Spec.Replicas, v1alpha1.DefaultClaimReplicas)))
}

// shortened takes members without sandboxes away, the last first, until there are as few
// as asked for.
func shortened(all []member, most int) []member {
	for i := len(all) - 1; i >= 0 && len(all) > most; i-- {
		if all[i].sandbox == nil {
			all = slices.Delete(all, i, i+1)
		}
	}
	return all
}

// counts reports whether a sandbox that is bound to a claim which is Completed is one that
// the claim got.
func counts(sandbox *v1alpha1.Sandbox) bool {
	return sandbox.Annotations[v1alpha1.AnnotationStarting] == "" && !v1alpha1.IsReservedFailed(sandbox) &&
		sandbox.DeletionTimestamp == nil && !hasEnded(sandbox)
}

// addresses are those of a sandbox, if it is there and has any.
func addresses(sandbox *v1alpha1.Sandbox) []string {
	if ip := address(sandbox); ip != "" {
		return []string{ip}
	}
	return nil
}

// address is the address of a sandbox, if it is there, has one and has not ended: the
// address of a pod that has may be another's.
func address(sandbox *v1alpha1.Sandbox) string {
	if sandbox == nil || hasEnded(sandbox) {
		return ""
	}
	return sandbox.Status.PodInfo.PodIP
}

// hasEnded reports whether a sandbox will never run again.
func hasEnded(sandbox *v1alpha1.Sandbox) bool {
	return sandbox.Status.Phase == v1alpha1.SandboxSucceeded || sandbox.Status.Phase == v1alpha1.SandboxFailed
}
