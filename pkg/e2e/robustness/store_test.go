// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/findings"
	"github.com/sandlot-io/sandlot/pkg/storecheck/invariants"
)

// storeChecker follows what is stored, revision after revision.
type storeChecker struct {
	claims    map[string]map[string]*v1alpha1.SandboxClaim // by namespace and name
	sandboxes map[string]map[string]*v1alpha1.Sandbox
	// holders are the claims that sandboxes were bound to, also when these have ended.
	holders  map[types.UID]string
	problems []string
}

// checkStore returns what must not be in any state of the store: what package invariants calls an error, a
// sandbox that is bound to a second claim or goes back to its pool, and a claim that loses a sandbox.
func checkStore(changes []change) []string {
	s := &storeChecker{
		claims: map[string]map[string]*v1alpha1.SandboxClaim{}, sandboxes: map[string]map[string]*v1alpha1.Sandbox{},
		holders: map[types.UID]string{},
	}
	for len(changes) > 0 && len(s.problems) < 20 {
		n := 1
		for n < len(changes) && changes[n].Revision == changes[0].Revision {
			n++
		}
		touched := map[string]bool{} // namespaces
		for i := range changes[:n] {
			if c := &changes[i]; s.apply(c) {
				touched[c.Namespace] = true
			}
		}
		for namespace := range touched {
			s.judge(namespace, changes[0].Revision)
		}
		changes = changes[n:]
	}
	return s.problems
}

func (s *storeChecker) problem(revision int64, format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf("revision %d: ", revision)+fmt.Sprintf(format, args...))
}

// apply applies a change, and reports whether it concerns a binding.
func (s *storeChecker) apply(c *change) (binding bool) {
	if c.Resource == "sandboxclaims" {
		before := s.claims[c.Namespace][c.Name]
		if before != nil && c.Claim != nil && before.UID == c.Claim.UID {
			for _, uid := range listedBy(before) {
				if !slices.Contains(listedBy(c.Claim), uid) {
					s.problem(c.Revision, "claim %s does not list sandbox %s any more", c.key(), uid)
				}
			}
		}
		put(s.claims, c.Namespace, c.Name, c.Claim)
		return true
	}
	before := s.sandboxes[c.Namespace][c.Name]
	put(s.sandboxes, c.Namespace, c.Name, c.Sandbox)
	if c.Sandbox == nil {
		return before != nil && holderOf(before) != ""
	}
	holder, held := holderOf(c.Sandbox), s.holders[c.Sandbox.UID]
	switch {
	case held == "" && holder != "":
		s.holders[c.Sandbox.UID] = holder
	case held != "" && holder != "" && holder != held:
		s.problem(c.Revision, "sandbox %s (%s) was bound to claim %s, and is bound to %s", c.key(), c.Sandbox.UID, held, holder)
	case held != "" && v1alpha1.IsInPool(c.Sandbox):
		s.problem(c.Revision, "sandbox %s (%s) was bound to claim %s, and is in its pool", c.key(), c.Sandbox.UID, held)
	}
	return before == nil || holderOf(before) != holder
}

// holderOf returns the UID of the claim that a sandbox is bound to.
func holderOf(sandbox *v1alpha1.Sandbox) string {
	if owner := sandbox.Annotations[v1alpha1.AnnotationOwner]; owner != v1alpha1.OwnerScaleDown {
		return owner
	}
	return ""
}

func put[T any](in map[string]map[string]*T, namespace, name string, object *T) {
	if in[namespace] == nil {
		in[namespace] = map[string]*T{}
	}
	if object == nil {
		delete(in[namespace], name)
		return
	}
	in[namespace][name] = object
}

// judge judges the state of a namespace.
func (s *storeChecker) judge(namespace string, revision int64) {
	state := &invariants.State{Partial: true}
	there := map[string]bool{"": true}
	for _, claim := range s.claims[namespace] {
		state.AddClaim(claim)
		there[string(claim.UID)] = true
	}
	for _, sandbox := range s.sandboxes[namespace] {
		if there[holderOf(sandbox)] { // the others are more and more, and apply has judged them
			state.AddSandbox(sandbox)
		}
	}
	state.Judge(time.Now(), func(f findings.Finding) {
		if f.Level == findings.Error {
			s.problem(revision, "%s: %s", f.Check, f.Message)
		}
	})
}
