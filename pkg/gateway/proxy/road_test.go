// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"testing"

	"github.com/sandlot-io/sandlot/pkg/gateway/proxy"
	"github.com/sandlot-io/sandlot/pkg/road"
)

// newRoad returns a road that lasts as long as the test.
func newRoad(t testing.TB, resolve road.Resolve) *road.Road {
	t.Helper()
	r := road.New(road.Options{Resolve: resolve, Error: proxy.RoadError})
	t.Cleanup(r.Close)
	return r
}
