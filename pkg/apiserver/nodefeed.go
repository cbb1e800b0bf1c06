// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"github.com/sandlot-io/sandlot/pkg/nodes"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// nodeFeed passes on to the index which nodes take pods.
type nodeFeed struct{ index *poolindex.Nodes }

var _ nodes.Handler = nodeFeed{}

// NodesListed implements nodes.Handler.
func (f nodeFeed) NodesListed(states map[string]nodes.State) {
	takePods := make(map[string]bool, len(states))
	for name, state := range states {
		takePods[name] = state.TakesPods
	}
	f.index.Replace(takePods)
}

// NodeChanged implements nodes.Handler.
func (f nodeFeed) NodeChanged(name string, state nodes.State) {
	f.index.SetTakesPods(name, state.TakesPods)
}

// NodeDeleted implements nodes.Handler.
func (f nodeFeed) NodeDeleted(name string) { f.index.SetTakesPods(name, false) }

// NodesUnknown implements nodes.Handler.
func (f nodeFeed) NodesUnknown() { f.index.Forget() }
