// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package reencryption

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/apiserver/storekeys"
)

const (
	// interval is how often a server looks whether there is something to do.
	interval = 5 * time.Second
	// pause is how long it rests after a pass that did not come to its end.
	pause = 5 * time.Minute
	// rewritesPerSecond bounds what a pass costs the store and those who watch it.
	rewritesPerSecond = 200
)

// Servers is the list of the servers of the store.
type Servers interface {
	// Say lets the others read in the list what this server writes with.
	Say(ctx context.Context, key string) error
	// Said returns what each server said, by name, and the name of this one.
	Said(ctx context.Context) (said map[string]string, self string, err error)
}

// Options are what a Rewriter needs.
type Options struct {
	KV clientv3.KV
	// StoragePrefix begins all keys of the store.
	StoragePrefix string
	Resources     []Resource
	Servers       Servers
	Clock         clock.WithTicker
}

// Rewriter encrypts what is stored with the key that new values are encrypted with.
type Rewriter struct {
	options Options
	record  string
	limiter flowcontrol.RateLimiter
	// restUntil is when a pass may begin after one that did not come to its end with
	// the same key.
	restUntil time.Time
	failedKey string
}

// New returns a Rewriter, which works while Run does.
func New(o Options) *Rewriter {
	registerMetrics()
	return &Rewriter{
		options: o, record: path.Join("/", o.StoragePrefix, storekeys.Encryption),
		limiter: flowcontrol.NewTokenBucketRateLimiter(rewritesPerSecond, rewritesPerSecond),
	}
}

// Run works until ctx is done.
func (r *Rewriter) Run(ctx context.Context) {
	ticker := r.options.Clock.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "What is stored could not be encrypted anew. It is tried again")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// look does what there is to do.
func (r *Rewriter) look(ctx context.Context) error {
	key, err := writeKey(ctx, r.options.Resources)
	if err != nil {
		return err
	}
	if err := r.options.Servers.Say(ctx, key); err != nil {
		return err
	}
	done, err := r.isDone(ctx, key)
	if err != nil {
		return err
	}
	if done {
		pending.Set(0)
		return nil
	}
	pending.Set(1)
	if mine, err := r.isMine(ctx, key); err != nil || !mine {
		return err
	}
	now := r.options.Clock.Now()
	if key == r.failedKey && now.Before(r.restUntil) {
		return nil
	}
	if err := r.work(ctx, key); err != nil {
		r.failedKey, r.restUntil = key, r.options.Clock.Now().Add(pause)
		return err
	}
	return nil
}

// errChanged means that what a pass has done may not be all.
var errChanged = errors.New("a server came meanwhile that writes with another key")

// work goes through the store, and writes down that everything in it is encrypted with
// the key.
func (r *Rewriter) work(ctx context.Context, key string) error {
	log := klog.FromContext(ctx)
	log.Info("Encrypting what is stored with the key that new values have", "key", key)
	rewritten, err := r.pass(ctx)
	if err != nil {
		return err
	}
	now, err := writeKey(ctx, r.options.Resources)
	if err != nil {
		return err
	}
	if mine, err := r.isMine(ctx, key); err != nil || !mine || now != key {
		return errors.Join(errChanged, err)
	}
	if _, err := r.options.KV.Put(ctx, r.record, key); err != nil {
		return fmt.Errorf("writing %s: %w", r.record, err)
	}
	pending.Set(0)
	log.Info("Everything that is stored is encrypted with the key that new values have", "key", key, "rewritten", rewritten)
	return nil
}

// isDone reports whether it is written down that everything is encrypted with the key.
func (r *Rewriter) isDone(ctx context.Context, key string) (bool, error) {
	resp, err := r.options.KV.Get(ctx, r.record)
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", r.record, err)
	}
	return len(resp.Kvs) == 1 && string(resp.Kvs[0].Value) == key, nil
}

// isMine reports whether all servers write with the key, and this is the one of them that
// goes through the store.
func (r *Rewriter) isMine(ctx context.Context, key string) (bool, error) {
	said, self, err := r.options.Servers.Said(ctx)
	if err != nil {
		return false, err
	}
	if _, there := said[self]; !there {
		return false, nil
	}
	for name, other := range said {
		if other != key || name < self {
			return false, nil
		}
	}
	return true, nil
}
