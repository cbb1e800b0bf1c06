// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"k8s.io/apimachinery/pkg/types"
)

// pool is the state of the model: what clients can know of the claims and sandboxes of a
// namespace. A pool never changes; each step that changes something makes another.
type pool struct {
	// claims are those that are there, by name.
	claims map[string]claim
	// holders are the claims that sandboxes were bound to, by the UID of the sandbox. A sandbox stays
	// in it when it or its claim is deleted, because no sandbox is bound twice.
	holders map[types.UID]types.UID
	// gone are the names of sandboxes that were deleted.
	gone map[string]bool
}

// claim is a claim of the model.
type claim struct {
	uid          types.UID
	replicas     int
	allOrNothing bool
	sandboxes    []types.UID
}

func (c claim) equal(other claim) bool {
	return c.uid == other.uid && c.replicas == other.replicas && slices.Equal(c.sandboxes, other.sandboxes)
}

// poolModel is the model of a namespace. Its operations have a *call as input, and no output: the outcome is
// part of the call. There are no calls with an unknown outcome: see resolve.
var poolModel = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		byNamespace := map[string][]porcupine.Operation{}
		for _, op := range all {
			namespace := op.Input.(*call).Namespace
			byNamespace[namespace] = append(byNamespace[namespace], op)
		}
		var parts [][]porcupine.Operation
		for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
			parts = append(parts, byNamespace[namespace])
		}
		return parts
	},
	Init: func() any { return &pool{} },
	Step: func(state, input, _ any) (bool, any) {
		after := state.(*pool).step(input.(*call))
		return after != nil, after
	},
	Equal: func(a, b any) bool { return a.(*pool).equal(b.(*pool)) },
	DescribeOperation: func(input, _ any) string {
		return input.(*call).String()
	},
	DescribeState: func(state any) string {
		p := state.(*pool)
		var text strings.Builder
		for _, name := range slices.Sorted(maps.Keys(p.claims)) {
			fmt.Fprintf(&text, "%s: %v<br>", name, p.claims[name].sandboxes)
		}
		fmt.Fprintf(&text, "%d sandboxes were bound", len(p.holders))
		return text.String()
	},
}

func (p *pool) equal(other *pool) bool {
	return p == other || maps.EqualFunc(p.claims, other.claims, claim.equal) &&
		maps.Equal(p.holders, other.holders) && maps.Equal(p.gone, other.gone)
}

// step returns the state after a call, or nil if the call cannot have had its outcome in this state.
func (p *pool) step(c *call) *pool {
	switch c.Verb {
	case createClaim:
		return p.create(c)
	case getClaim:
		return p.get(c)
	case deleteClaim:
		return p.delete(c)
	case releaseSandbox:
		return p.release(c)
	}
	return nil
}

func (p *pool) create(c *call) *pool {
	_, there := p.claims[c.Name]
	switch {
	case c.DryRun || c.Outcome == refused:
		return p
	case c.Outcome == exists && there:
		return p
	case c.Outcome == succeeded && !there:
		return p.bind(c.Name, claim{uid: c.UID, replicas: c.Replicas, allOrNothing: c.AllOrNothing}, c.Sandboxes)
	}
	return nil
}

func (p *pool) get(c *call) *pool {
	found, there := p.claims[c.Name]
	switch {
	case c.Outcome == notFound && !there:
		return p
	case c.Outcome == succeeded && there && found.uid == c.UID:
		return p.bind(c.Name, found, c.Sandboxes)
	}
	return nil
}

func (p *pool) delete(c *call) *pool {
	_, there := p.claims[c.Name]
	switch {
	case c.Outcome == notFound && !there:
		return p
	case c.Outcome == succeeded && there:
		after := *p
		after.claims = maps.Clone(p.claims)
		delete(after.claims, c.Name)
		return &after
	}
	return nil
}

func (p *pool) release(c *call) *pool {
	switch gone := p.gone[c.Name]; {
	case c.Outcome == notFound && gone:
		return p
	case c.Outcome == succeeded && !gone:
		after := *p
		after.gone = with(p.gone, c.Name, true)
		return &after
	}
	return nil
}

// bind returns the state in which a claim has these sandboxes. Those that it did not have before were bound
// since, which nothing but this answer shows. It returns nil if the claim has lost one, if one is another
// claim's, or if these are a number that the claim cannot have.
func (p *pool) bind(name string, its claim, sandboxes []types.UID) *pool {
	if known, there := p.claims[name]; there && slices.Equal(known.sandboxes, sandboxes) {
		return p
	}
	n := len(sandboxes)
	if n > its.replicas || its.allOrNothing && n != 0 && n != its.replicas {
		return nil
	}
	for _, uid := range its.sandboxes {
		if !slices.Contains(sandboxes, uid) {
			return nil
		}
	}
	holders := maps.Clone(p.holders)
	if holders == nil {
		holders = map[types.UID]types.UID{}
	}
	for _, uid := range sandboxes {
		holder, bound := p.holders[uid]
		if bound && (holder != its.uid || !slices.Contains(its.sandboxes, uid)) {
			return nil
		}
		holders[uid] = its.uid
	}
	if len(holders) != len(p.holders)+n-len(its.sandboxes) {
		return nil // one is listed twice
	}
	after := *p
	its.sandboxes = sandboxes
	after.claims, after.holders = with(p.claims, name, its), holders
	return &after
}

func with[V any](m map[string]V, key string, value V) map[string]V {
	changed := make(map[string]V, len(m)+1)
	maps.Copy(changed, m)
	changed[key] = value
	return changed
}

// linearize returns why calls, of which none has an unknown outcome, cannot have been carried out one after the
// other, each between its start and its end; nothing if they can.
func linearize(calls []*call, patience time.Duration) (problems []string, info porcupine.LinearizationInfo) {
	operations := make([]porcupine.Operation, 0, len(calls))
	for _, c := range calls {
		operations = append(operations, porcupine.Operation{ClientId: c.Client, Input: c, Call: int64(c.Start), Return: int64(c.End)})
	}
	result, info := porcupine.CheckOperationsVerbose(poolModel, operations, patience)
	switch result {
	case porcupine.Ok:
		return nil, info
	case porcupine.Unknown:
		return []string{fmt.Sprintf("the calls were not checked in %s", patience)}, info
	}
	for i, part := range poolModel.Partition(operations) {
		var longest []int
		for _, partial := range info.PartialLinearizations()[i] {
			if len(partial) > len(longest) {
				longest = partial
			}
		}
		if len(longest) == len(part) {
			continue
		}
		// The call that ended first of those that have no place.
		var blamed *call
		for n, op := range part {
			if c := op.Input.(*call); !slices.Contains(longest, n) && (blamed == nil || c.End < blamed.End) {
				blamed = c
			}
		}
		text := fmt.Sprintf("no order of the calls explains this outcome (%s to %s): %s. Calls of the same object:", seconds(blamed.Start), seconds(blamed.End), blamed)
		for _, op := range part {
			if c := op.Input.(*call); c.Name == blamed.Name {
				text += fmt.Sprintf("\n\t%s to %s: %s", seconds(c.Start), seconds(c.End), c)
			}
		}
		problems = append(problems, text)
	}
	return problems, info
}
