// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"testing"
)

// TestPlacesOfNamespaces: neither a user nor a namespace, with any number of users,
// shuts others out.
func TestPlacesOfNamespaces(t *testing.T) {
	r := NewProxyREST(nil, nil)
	taken := map[string]int{}
	for i := range 10 * maxProxied {
		user := fmt.Sprintf("user-%d", i%10)
		if _, err := r.enter(user, "crowded"); err == nil {
			taken[user]++
		}
	}
	all := 0
	for user, n := range taken {
		if all += n; n > maxProxiedOfUser {
			t.Errorf("%s has %d places", user, n)
		}
	}
	if all > maxProxied/2 || all < maxProxied/4 {
		t.Errorf("the users of one namespace have %d places", all)
	}
	for range maxProxied / 5 {
		leave, err := r.enter("other", "calm")
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
	}
	if _, err := r.enter("other", "calm"); err == nil {
		t.Errorf("a user has more than %d places", maxProxiedOfUser)
	}
}
