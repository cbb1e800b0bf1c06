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

// earlyCompaction is what is known of the compactions before.
type earlyCompaction struct {
	// version is that of the key by which all API servers agree on who compacts, and
	// revision the last one that was compacted.
	version, revision int64
}

// compactEarly compacts the history but for the last seconds. It goes by the key that the
// compaction of Kubernetes goes by, so that watch caches know of it, and other servers do not
// compact as well.
func (k *Keeper) compactEarly(ctx context.Context, used float64) {
	keep := keptHistory
	if used >= squeezedTo {
		keep = leastHistory
	}
	revision := k.revisionBefore(keep)
	if revision <= k.early.revision {
		return
	}
	within, cancel := context.WithTimeout(ctx, compactTimeout)
	defer cancel()
	for range 2 { // the first one finds out the version, if another compacted meanwhile
		version, _, compacted, err := etcd3.Compact(within, k.Etcd, k.early.version, revision)
		k.early.version = version
		switch {
		case errors.Is(err, rpctypes.ErrCompacted):
			k.early.revision = revision
			return
		case err != nil:
			klog.FromContext(ctx).Error(err, "Failed to compact etcd before it is full")
			return
		}
		if k.early.revision = max(k.early.revision, compacted); k.early.revision >= revision {
			return
		}
	}
}
