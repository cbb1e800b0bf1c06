// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// newRetry spaces out the looks of a claim at what nobody may tell it of, such as
// templates of the cluster.
func newRetry() wait.Backoff {
	return wait.Backoff{Duration: 2 * time.Second, Factor: 1.5, Jitter: 0.2, Steps: 6, Cap: 5 * time.Second}
}

// retryAside looks again, when it is time, at candidates that were put aside.
func (j *job) retryAside(d *draft, now time.Time) {
	if !j.retryAt.IsZero() && !now.Before(j.retryAt) && j.a.aside.has(d.supply.sources) {
		j.a.bringBack(func(p poolindex.Pool) bool {
			return slices.ContainsFunc(d.supply.sources, func(s source) bool { return s.pool == p })
		})
	}
}

// scheduleRetry says when the claim looks again after a draft, if there is something
// in its way.
func (j *job) scheduleRetry(d *draft, now time.Time) {
	switch {
	case d.missing == 0 || d.broken == nil && !j.a.aside.has(d.supply.sources):
		j.retryAt, j.retry = time.Time{}, newRetry()
	case !now.Before(j.retryAt):
		j.retryAt = now.Add(j.retry.Step())
	}
}
