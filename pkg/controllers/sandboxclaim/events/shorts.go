// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"hash/maphash"
	"time"

	"golang.org/x/time/rate"
)

const (
	// shortsEach is how many claims a second of a namespace get an event because they
	// ended short at once, and shortsAtOnce how many at once. Who has such claims made
	// without end writes no more than that to the cluster.
	shortsEach   = 1
	shortsAtOnce = 20
	// shortsOf is how many namespaces have a bound of their own; others share one.
	shortsOf = 64
)

// shorts bounds events, for each namespace by itself.
type shorts struct {
	seed   maphash.Seed
	limits [shortsOf]*rate.Limiter
}

func newShorts() *shorts {
	s := &shorts{seed: maphash.MakeSeed()}
	for i := range s.limits {
		s.limits[i] = rate.NewLimiter(shortsEach, shortsAtOnce)
	}
	return s
}

// allow reports whether a claim of a namespace may have an event now.
func (s *shorts) allow(namespace string, now time.Time) bool {
	return s.limits[maphash.String(s.seed, namespace)%shortsOf].AllowN(now, 1)
}
