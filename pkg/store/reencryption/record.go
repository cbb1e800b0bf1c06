// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package reencryption

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// record is what is written down in the store about its keys.
type record struct {
	// key is what everything is encrypted with. Unless it is done, a pass has begun to
	// do that.
	key  string
	done bool
	// revision is that of the record in etcd, and 0 if there is none.
	revision int64
}

// unfinished begins a record of what is not done.
const unfinished = "rewriting "

func (w record) String() string {
	if w.done {
		return w.key
	}
	return unfinished + w.key
}

// retractTimeout bounds Retract.
const retractTimeout = 20 * time.Second

// Retract removes what is written down if this server writes with another key: it is not
// true any more then. It is to be called before anything is written.
func (r *Rewriter) Retract(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, retractTimeout)
	defer cancel()
	key, err := writeKey(ctx, r.options.Resources)
	if err == nil {
		_, err = r.retract(ctx, key)
	}
	return err
}

// retract returns what is written down about the key, and removes what is about another
// one. A pass that is under way with that one does not come to its end then.
func (r *Rewriter) retract(ctx context.Context, key string) (record, error) {
	for {
		written, err := r.read(ctx)
		if err != nil || written.revision == 0 || written.key == key {
			return written, err
		}
		resp, err := r.options.KV.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(r.at), "=", written.revision)).
			Then(clientv3.OpDelete(r.at)).
			Commit()
		if err != nil {
			return record{}, fmt.Errorf("deleting %s: %w", r.at, err)
		}
		if resp.Succeeded {
			return record{}, nil
		}
	}
}

func (r *Rewriter) read(ctx context.Context) (record, error) {
	resp, err := r.options.KV.Get(ctx, r.at)
	if err != nil {
		return record{}, fmt.Errorf("reading %s: %w", r.at, err)
	}
	if len(resp.Kvs) == 0 {
		return record{}, nil
	}
	key, begun := strings.CutPrefix(string(resp.Kvs[0].Value), unfinished)
	return record{key: key, done: !begun, revision: resp.Kvs[0].ModRevision}, nil
}

// replace writes down other words in place of those that were read. It returns errChanged
// if another server did so meanwhile.
func (r *Rewriter) replace(ctx context.Context, written, by record) (record, error) {
	resp, err := r.options.KV.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(r.at), "=", written.revision)).
		Then(clientv3.OpPut(r.at, by.String())).
		Commit()
	if err != nil {
		return record{}, fmt.Errorf("writing %s: %w", r.at, err)
	}
	if !resp.Succeeded {
		return record{}, errChanged
	}
	by.revision = resp.Header.Revision
	return by, nil
}
