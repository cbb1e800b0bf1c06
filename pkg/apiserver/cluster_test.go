// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// One limit is for all that is asked of the cluster, by whatever client, but the reads of pods.
func TestClusterClientsShareALimit(t *testing.T) {
	limit := flowcontrol.NewTokenBucketRateLimiter(10, 20)
	c, err := newCluster(&restclient.Config{Host: "https://localhost:1", RateLimiter: limit}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]restclient.Interface{
		"core": c.core().RESTClient(), "authorization": c.client.AuthorizationV1().RESTClient(),
	} {
		if client.GetRateLimiter() != limit {
			t.Errorf("%s has another limit", name)
		}
	}
	if limit := c.unlimited.RESTClient().GetRateLimiter(); limit != nil {
		t.Errorf("reads of pods have the limit %v", limit.QPS())
	}
}
