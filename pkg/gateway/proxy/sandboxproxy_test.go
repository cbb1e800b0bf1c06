// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"testing"

	"github.com/sandlot-io/sandlot/pkg/gateway/proxy"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

// newSandboxProxy returns a proxy that lasts as long as the test.
func newSandboxProxy(t testing.TB, resolve sandboxproxy.Resolve, connections *sandboxproxy.Connections) *sandboxproxy.Proxy {
	t.Helper()
	r := sandboxproxy.New(sandboxproxy.Options{Resolve: resolve, Error: proxy.ForwardError, Connections: connections})
	t.Cleanup(r.Close)
	return r
}
