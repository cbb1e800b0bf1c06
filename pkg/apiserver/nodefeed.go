// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"github.com/sandlot-io/sandlot/pkg/allocator"
	"github.com/sandlot-io/sandlot/pkg/nodes"
)

// nodeFeed passes on to the allocator which nodes take pods.
type nodeFeed struct{ feeds *allocator.Feeds }

var _ nodes.Handler = nodeFeed{}

// NodesListed implements nodes.Handler.
func (f nodeFeed) NodesListed(states map[string]nodes.State) {
	takePods := make(map[string]bool, len(states))
	for name, state := range states {
		takePods[name] = state.TakesPods
	}
	f.feeds.NodesListed(takePods)
}

// NodeChanged implements nodes.Handler.
func (f nodeFeed) NodeChanged(name string, state nodes.State) {
	f.feeds.NodeChanged(name, state.TakesPods)
}

// NodeDeleted implements nodes.Handler.
func (f nodeFeed) NodeDeleted(name string) { f.feeds.NodeChanged(name, false) }

// NodesUnknown implements nodes.Handler.
func (f nodeFeed) NodesUnknown() { f.feeds.NodesUnknown() }
