// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	restclient "k8s.io/client-go/rest"
)

// The cluster is asked in writes and claims: no client's own limit may hold them up.
func TestClusterClientIsNotLimited(t *testing.T) {
	cluster := &restclient.Config{Host: "https://localhost:1"}
	client, err := newClusterClient(cluster)
	if err != nil {
		t.Fatal(err)
	}
	if limiter := client.RESTClient().GetRateLimiter(); limiter != nil {
		t.Errorf("limited to %v a second", limiter.QPS())
	}
	if cluster.QPS != 0 {
		t.Error("the caller's config has changed")
	}
}
