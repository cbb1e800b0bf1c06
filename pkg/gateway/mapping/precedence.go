// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"strconv"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Precedence decides which of several sandboxes with one id the id means. There are two after a claim was
// created again under its name.
type Precedence struct {
	isDeleted bool
	// claimed is a Unix time.
	claimed int64
	// Version is the resourceVersion as a number.
	Version uint64
}

// PrecedenceOf returns the precedence of a sandbox.
func PrecedenceOf(sb *v1alpha1.Sandbox) Precedence {
	p := Precedence{isDeleted: sb.DeletionTimestamp != nil}
	if at, err := time.Parse(time.RFC3339, sb.Annotations[v1alpha1.AnnotationClaimTimestamp]); err == nil {
		p.claimed = at.Unix()
	}
	p.Version, _ = strconv.ParseUint(sb.ResourceVersion, 10, 64) // 0 is older than anything
	return p
}

// Over reports whether an id means a sandbox rather than another one: one that is not being deleted, then the
// one that was claimed later, or in the same second and changed later: the proxy has the last change, too.
func (p Precedence) Over(other Precedence) bool {
	if p.isDeleted != other.isDeleted {
		return other.isDeleted
	}
	if p.claimed != other.claimed {
		return p.claimed > other.claimed
	}
	return p.Version >= other.Version
}
