// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package reencryption

import (
	"context"
	"errors"
	"path"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/apiserver/storekeys"
	"github.com/sandlot-io/sandlot/pkg/store/rewriting"
)

const (
	// interval is how often a server looks whether there is something to do.
	interval = 5 * time.Second
	// pause is how long it rests after a pass that did not come to its end.
	pause = 5 * time.Minute
	// settle is for how long all servers have to agree before a pass begins: a request may
	// have been encrypted with another key just before, and be written a little later.
	settle = 30 * time.Second
	// renews follows the key in what a server says: it knows how to use what Renew of a resource
	// returns. Nothing begins while there are servers of a version that does not, because they
	// say the key alone.
	renews = " renews"
)

// Servers is the list of the servers of the store.
type Servers interface {
	// Say lets the others read something in the list of this server.
	Say(ctx context.Context, what string) error
	// Said returns what each server said, by name, and the name of this one.
	Said(ctx context.Context) (said map[string]string, self string, err error)
}

// Options are what a Rewriter needs.
type Options struct {
	KV clientv3.KV
	// StoragePrefix begins all keys of the store.
	StoragePrefix string
	Resources     []Resource
	// Refresh lets this server read what Renew of a resource may have changed. It is called
	// every few seconds, and before this server counts as done; nil does nothing.
	Refresh func(ctx context.Context) error
	Servers Servers
	Clock   clock.WithTicker
}

// Rewriter encrypts what is stored with the key that new values are encrypted with.
type Rewriter struct {
	options Options
	at      string // the key in etcd of the record
	limiter flowcontrol.RateLimiter
	// agreedKey is what all servers have written with since agreedAt, if it is for this
	// one to go through the store.
	agreedKey string
	agreedAt  time.Time
	// restUntil is when a pass may begin after one that did not come to its end with
	// the same key.
	restUntil time.Time
	failedKey string
}

// New returns a Rewriter, which works while Run does.
func New(o Options) *Rewriter {
	registerMetrics()
	return &Rewriter{
		options: o, at: path.Join("/", o.StoragePrefix, storekeys.Encryption),
		limiter: rewriting.NewLimiter(),
	}
}

// Run works until ctx is done.
func (r *Rewriter) Run(ctx context.Context) {
	ticker := r.options.Clock.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to encrypt the store with the current key, retrying")
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
	written, err := r.retract(ctx, key)
	if err != nil {
		return err
	}
	if err := r.options.Servers.Say(ctx, key+renews); err != nil {
		return err
	}
	if err := r.refresh(ctx); err != nil { // after written, so that it has what was renewed before
		return err
	}
	if written.done {
		pending.Set(0)
		unreadable.Set(0)
		return nil
	}
	pending.Set(1)
	if mine, err := r.isMine(ctx, key); err != nil || !mine {
		r.agreedKey = ""
		return err
	}
	now := r.options.Clock.Now()
	if key != r.agreedKey {
		r.agreedKey, r.agreedAt = key, now
	}
	if now.Before(r.agreedAt.Add(settle)) || key == r.failedKey && now.Before(r.restUntil) {
		return nil
	}
	if err := r.work(ctx, key, written); err != nil {
		r.failedKey, r.restUntil = key, r.options.Clock.Now().Add(pause)
		return err
	}
	return nil
}

// errChanged means that what a pass has done may not be all.
var errChanged = errors.New("a server came meanwhile that writes with another key, or goes through the store as well")

// work goes through the store, and writes down that everything in it is encrypted with
// the key.
func (r *Rewriter) work(ctx context.Context, key string, written record) error {
	log := klog.FromContext(ctx)
	log.Info("Encrypting the store with the current key", "key", key)
	begun, err := r.replace(ctx, written, record{key: key})
	if err != nil {
		return err
	}
	rewritten, err := r.pass(ctx)
	if err != nil {
		return err
	}
	if err := r.refresh(ctx); err != nil {
		return err
	}
	now, err := writeKey(ctx, r.options.Resources)
	if err != nil {
		return err
	}
	if mine, err := r.isMine(ctx, key); err != nil || !mine || now != key {
		return errors.Join(errChanged, err)
	}
	if _, err := r.replace(ctx, begun, record{key: key, done: true}); err != nil {
		return err
	}
	pending.Set(0)
	log.Info("Encrypted the store with the current key", "key", key, "rewritten", rewritten)
	return nil
}

func (r *Rewriter) refresh(ctx context.Context) error {
	if r.options.Refresh == nil {
		return nil
	}
	return r.options.Refresh(ctx)
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
		if other != key+renews || name < self {
			return false, nil
		}
	}
	return true, nil
}
