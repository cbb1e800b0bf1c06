// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"fmt"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// FreshLimit is how many sandboxes made for it one claim may hold at a time. As an
// error it is why no more are made for a claim now.
type FreshLimit struct {
	// Most is the number, and Rule the name of what it comes from.
	Most int
	Rule string
}

// NewFreshLimit returns the limit for sandboxes of one kind. Of what is said of their
// number the first counts that says something, else otherwise. bytes is how many a claim
// may have made in all, of which each takes some.
func NewFreshLimit(otherwise int, bytes, each int64, said ...*int32) FreshLimit {
	limit := FreshLimit{Most: otherwise, Rule: "maxFreshSandboxes"}
	if first := cmp.Or(said...); first != nil {
		limit.Most = int(*first)
	}
	if fit := bytes / max(each, 1); fit < int64(limit.Most) {
		limit = FreshLimit{Most: int(fit), Rule: fmt.Sprintf("%d bytes in all, and one has %d", bytes, each)}
	}
	return limit
}

// Left is how many more may be made for a claim that holds these sandboxes. Those of
// pools do not count, and neither do those that it has released or that are deleted. The
// annotation that tells them apart takes the right to bind, unlike AnnotationSandboxPriority.
func (l FreshLimit) Left(held []*v1alpha1.Sandbox) int {
	left := l.Most
	for _, sb := range held {
		if sb.Annotations[v1alpha1.AnnotationPoolUID] == "" && sb.DeletionTimestamp == nil {
			left--
		}
	}
	return max(0, left)
}

// Error implements error.
func (l FreshLimit) Error() string {
	return fmt.Sprintf("one claim may hold %d at a time (%s); what it lacks waits for the pool", l.Most, l.Rule)
}
