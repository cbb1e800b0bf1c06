// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"testing"

	"github.com/sandlot-io/sandlot/pkg/gateway/proxy"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

// newRoad returns a road that lasts as long as the test.
func newRoad(t testing.TB, resolve sandboxproxy.Resolve) *sandboxproxy.Road {
	t.Helper()
	r := sandboxproxy.New(sandboxproxy.Options{Resolve: resolve, Error: proxy.RoadError})
	t.Cleanup(r.Close)
	return r
}
