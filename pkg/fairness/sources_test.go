// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness_test

import (
	"fmt"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// fill lets sources take all slots they get, one source after the other, and returns after
// how many sources one gets none.
func fill(sources *fairness.Sources, name func(i int) string) (n int, releases []func()) {
	for ; ; n++ {
		before := len(releases)
		for {
			release, ok := sources.Take(name(n))
			if !ok {
				break
			}
			releases = append(releases, release)
		}
		if len(releases) == before {
			return n, releases
		}
	}
}

// TestSourcesThatComeOneAfterTheOther: sources that each take all they get leave slots to dozens
// that have none, and a site of 256 sources to other sites.
func TestSourcesThatComeOneAfterTheOther(t *testing.T) {
	const total, perSource = 128, 32
	address := func(i int) string { return fmt.Sprintf("10.0.%d.%d/32", i/256, i%256) }
	ofSite := func(i int) string { return fmt.Sprintf("2001:db8:0:%x::/64", i%256) }

	sources := fairness.NewSources(total, perSource)
	n, releases := fill(sources, address)
	if n != 2+total/2 || len(releases) != total {
		t.Errorf("%d sources take %d of %d slots", n, len(releases), total)
	}
	for _, release := range releases {
		release()
		release()
	}
	if again, _ := fill(sources, address); again != n {
		t.Errorf("a slot is lost or made: %d sources, want %d", again, n)
	}

	sources = fairness.NewSources(total, perSource)
	n, releases = fill(sources, ofSite)
	if n != 1+total/4 || len(releases) != total/2 {
		t.Errorf("%d sources of a site take %d of %d slots", n, len(releases), total)
	}
	other := func(i int) string { return fmt.Sprintf("2001:db8:0:1%02x::/64", i%256) }
	if n, _ := fill(sources, other); n != total/4 {
		t.Errorf("%d sources of another site have one", n)
	}
	if n, _ := fill(sources, address); n != total/4 {
		t.Errorf("%d sources of other sites have one", n)
	}
}

func TestOnePlaceForSources(t *testing.T) {
	for _, source := range []string{"10.0.0.1/32", "2001:db8::/64", ""} {
		slots := fairness.NewSources(4, 1)
		release, ok := slots.Take(source)
		if !ok {
			t.Fatalf("%q gets none of 4", source)
		}
		if _, ok := slots.Take(source); ok {
			t.Errorf("%q has more than it may", source)
		}
		release()
		if _, ok := slots.Take(source); !ok {
			t.Errorf("%q does not get its slot again", source)
		}
	}
}
