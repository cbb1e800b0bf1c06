// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/klog/v2"
)

const (
	// compactRevisionKey is the key with the last compacted revision. A server compacts only after
	// it has updated the key from the version that it last read, so two servers do not compact at
	// the same time. kube-apiserver does the same, and its watch caches read the key.
	compactRevisionKey = "compact_rev_key"

	// keptHistory is how much history an early compaction keeps, and leastHistory from
	// throttleTo on. Watches that fall behind relist.
	keptHistory, leastHistory = 10 * time.Second, 2 * time.Second

	// Between two early compactions there is a pause of compactionPause times the duration of
	// the first, because etcd reads all keys for each; after a failure, failedCompactionPause
	// at least.
	compactionPause       = 2
	failedCompactionPause = 10 * time.Second

	// compactTimeout bounds a compaction.
	compactTimeout = time.Minute
)

// earlyCompaction is the state of compactEarly.
type earlyCompaction struct {
	// version is the version of compactRevisionKey, and revision the last revision that was
	// compacted.
	version, revision int64
	// own are the revisions after it that wrote compactRevisionKey.
	own []int64
	// next is when the next compaction may begin.
	next time.Time
}

// compactEarly compacts all but the last seconds of history, if anything was written since the last
// time.
func (m *Maintainer) compactEarly(ctx context.Context, o *etcdState, used float64) {
	keep := keptHistory
	if used >= throttleTo {
		keep = leastHistory
	}
	began := m.Clock.Now()
	revision := o.revisionBefore(began.Add(-keep))
	if began.Before(m.early.next) || !m.early.worthCompacting(revision) {
		return
	}
	err := m.compactTo(ctx, revision)
	pause := compactionPause * m.Clock.Since(began)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to compact etcd early")
		pause = max(pause, failedCompactionPause)
	}
	m.early.next = m.Clock.Now().Add(pause)
}

// worthCompacting reports whether compacting up to a revision removes more than old values of
// compactRevisionKey.
func (c *earlyCompaction) worthCompacting(revision int64) bool {
	writes := revision - c.revision
	for _, own := range c.own {
		if own <= revision {
			writes--
		}
	}
	return writes > 0
}

// compacted records that history up to a revision is compacted.
func (c *earlyCompaction) compacted(revision int64) {
	c.revision = max(c.revision, revision)
	for len(c.own) > 0 && c.own[0] <= c.revision {
		c.own = c.own[1:]
	}
}

// compactTo compacts up to a revision, unless another server does, and waits until the history is
// removed from the database. Without waiting, compactions would queue up in etcd.
func (m *Maintainer) compactTo(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, compactTimeout)
	defer cancel()
	for range 2 { // the first attempt finds out the version if another server has compacted
		reserved, err := m.reserve(ctx, revision)
		if err != nil {
			return fmt.Errorf("writing %s: %w", compactRevisionKey, err)
		}
		if reserved {
			if err := compact(ctx, m.Etcd, revision); err != nil {
				return err
			}
			m.early.compacted(revision)
		}
		if m.early.revision >= revision {
			return nil
		}
	}
	return nil
}

// reserve writes a revision to compactRevisionKey if no other server has done so meanwhile, and
// reports whether it did. Otherwise it reads what the other server has compacted.
func (m *Maintainer) reserve(ctx context.Context, revision int64) (bool, error) {
	c := &m.early
	resp, err := m.Etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.Version(compactRevisionKey), "=", c.version)).
		Then(clientv3.OpPut(compactRevisionKey, strconv.FormatInt(revision, 10))).
		Else(clientv3.OpGet(compactRevisionKey)).
		Commit()
	if err != nil {
		return false, err
	}
	if resp.Succeeded {
		c.version++
		c.own = append(c.own, resp.Header.Revision)
		return true, nil
	}
	c.version = 0
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		c.version = kv.Version
		if compacted, err := strconv.ParseInt(string(kv.Value), 10, 64); err == nil {
			c.compacted(compacted)
		}
	}
	return false, nil
}

// compact compacts up to a revision and waits until the history is removed from the database. If the
// revision is compacted already, it succeeds. Even then etcd commits its database, which compactAll
// needs.
func compact(ctx context.Context, etcd *clientv3.Client, revision int64) error {
	_, err := etcd.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil
	}
	return err
}
