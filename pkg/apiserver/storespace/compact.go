// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package storespace

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/klog/v2"
)

// earlyCompaction is the state of compactEarly.
type earlyCompaction struct {
	// version is the version of compact_rev_key, and revision the last revision that was
	// compacted.
	version, revision int64
}

// compactEarly compacts all but the last seconds of history. It uses kube-apiserver's
// compact_rev_key, so that watch caches notice it and other servers do not compact too.
func (m *Maintainer) compactEarly(ctx context.Context, used float64) {
	keep := keptHistory
	if used >= throttleTo {
		keep = leastHistory
	}
	revision := m.revisionBefore(keep)
	if revision <= m.early.revision {
		return
	}
	within, cancel := context.WithTimeout(ctx, compactTimeout)
	defer cancel()
	for range 2 { // the first attempt returns the version if another server has compacted
		version, _, compacted, err := etcd3.Compact(within, m.Etcd, m.early.version, revision)
		m.early.version = version
		switch {
		case errors.Is(err, rpctypes.ErrCompacted):
			m.early.revision = revision
			return
		case err != nil:
			klog.FromContext(ctx).Error(err, "Failed to compact etcd early")
			return
		}
		if m.early.revision = max(m.early.revision, compacted); m.early.revision >= revision {
			return
		}
	}
}
