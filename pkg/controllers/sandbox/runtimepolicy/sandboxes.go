// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimepolicy

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// source is where an agent-runtime of sandboxes comes from, or may come from.
type source struct {
	// template is the template that the sandboxes refer to, which may bring one. Empty:
	// they say by themselves that they have one.
	template v1alpha1.SandboxTemplateRef
}

// sourceOf returns the source of a sandbox, or false if it has no agent-runtime.
func sourceOf(sandbox *v1alpha1.Sandbox) (source, bool) {
	switch {
	case podtemplate.HasAgentRuntime(sandbox):
		return source{}, true
	case sandbox.Spec.Template == nil && sandbox.Spec.TemplateRef != nil:
		return source{template: *sandbox.Spec.TemplateRef}, true
	}
	return source{}, false
}

// sandboxes are those that have or may have an agent-runtime, as the cache shows them. What
// is asked of them costs the same however many there are. They are written by the event
// handler of Sandboxes alone.
type sandboxes struct {
	mu     sync.Mutex
	groups map[string]map[source]*group
	of     map[types.NamespacedName]source
}

// group are the sandboxes of a namespace that have the same source.
type group struct {
	members int
	// example is the first of them.
	example *v1alpha1.Sandbox
}

func newSandboxes() *sandboxes {
	return &sandboxes{groups: map[string]map[source]*group{}, of: map[types.NamespacedName]source{}}
}

// put takes in the state of a sandbox, and reports whether its namespace has a new source by
// that, and if it lost one.
func (s *sandboxes) put(sandbox *v1alpha1.Sandbox) (gained, lost bool) {
	key := client.ObjectKeyFromObject(sandbox)
	now, has := sourceOf(sandbox)
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, had := s.of[key]; had == has && before == now {
		return false, false
	}
	lost = s.removeLocked(key)
	if !has {
		return false, lost
	}
	s.of[key] = now
	groups := s.groups[key.Namespace]
	if groups == nil {
		groups = map[source]*group{}
		s.groups[key.Namespace] = groups
	}
	if groups[now] == nil {
		groups[now], gained = &group{example: sandbox}, true
	}
	groups[now].members++
	return gained, lost
}

// remove takes in that a sandbox is gone, and reports whether its namespace lost a source by
// that.
func (s *sandboxes) remove(key types.NamespacedName) (lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removeLocked(key)
}

func (s *sandboxes) removeLocked(key types.NamespacedName) (lost bool) {
	was, had := s.of[key]
	if !had {
		return false
	}
	delete(s.of, key)
	groups := s.groups[key.Namespace]
	groups[was].members--
	if groups[was].members > 0 {
		return false
	}
	delete(groups, was)
	if len(groups) == 0 {
		delete(s.groups, key.Namespace)
	}
	return true
}

// in reports whether a namespace has a sandbox that has an agent-runtime. Otherwise it returns
// an example for each template that may bring one.
func (s *sandboxes) in(namespace string) (has bool, examples []*v1alpha1.Sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	groups := s.groups[namespace]
	if groups[source{}] != nil {
		return true, nil
	}
	for _, g := range groups {
		examples = append(examples, g.example)
	}
	return false, examples
}
