// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness_test

import (
	"slices"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

func TestSource(t *testing.T) {
	var got []string
	for _, peer := range []string{"10.0.0.1:1", "10.0.0.1:2", "[::ffff:10.0.0.1]:3", "[2001:db8::1]:1", "[2001:db8::ffff:1]:1", "[fe80::1%eth0]:1", "@", "pipe"} {
		got = append(got, fairness.Source(peer))
	}
	want := []string{"10.0.0.1/32", "10.0.0.1/32", "10.0.0.1/32", "2001:db8::/64", "2001:db8::/64", "fe80::/64", "", ""}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSite(t *testing.T) {
	for peer, want := range map[string]string{
		"10.0.0.1:1": "10.0.0.1/32", "[2001:db8:0:1ff::1]:1": "2001:db8:0:100::/56", "[2001:db8:0:100::1]:1": "2001:db8:0:100::/56",
		"[2001:db8:0:200::1]:1": "2001:db8:0:200::/56", "@": "",
	} {
		if got := fairness.Site(fairness.Source(peer)); got != want {
			t.Errorf("%s has the site %q, want %q", peer, got, want)
		}
	}
}
