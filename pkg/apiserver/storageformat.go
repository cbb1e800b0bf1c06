// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/store/format"
	"github.com/sandlot-io/sandlot/pkg/store/reencryption"
	"github.com/sandlot-io/sandlot/pkg/version"
)

const (
	// formatInterval is how often a server looks whether the format of the store is to change.
	formatInterval = 5 * time.Second
	// formatSettle is for how long all servers have to agree before it does. A server that has read
	// the format of the store at its start is in the list of servers within that time.
	formatSettle = 30 * time.Second
	// formatKept is for how long a server stores protobuf after it has seen itself in the list of servers.
	// It is so much less than formatSettle that what it has encoded by then is written by then, too. Nothing
	// guarantees that: a transaction that etcd takes more than 10 s later, while its server is not in the list,
	// may stay protobuf behind the rewrite, and then only earlier versions cannot read it. To compare the lease
	// in each transaction would prevent it, but the generic store makes its transactions itself, and all writes
	// would pay for it. docs/versions.md says what to do.
	formatKept = 20 * time.Second
	// formatPause is how long a server waits after it could not store all as JSON: it reads the whole store.
	formatPause = 5 * time.Minute
)

// The names of servers have one of these parts, by what they are to write. Those of versions that do
// not read protobuf have neither.
const (
	writesJSON     = "json"
	writesProtobuf = "protobuf"
)

// serverID returns a part of the name of a server that is to store objects in a media type.
func serverID(id, mediaType string) string {
	if mediaType == runtime.ContentTypeProtobuf {
		return id + "." + writesProtobuf
	}
	return id + "." + writesJSON
}

// formatKeeper lets this server store objects in the format that it is to: in protobuf, once all servers
// of the store read that, or in JSON. When all servers are to store JSON, the first of them writes what
// is stored in protobuf again, so that earlier versions can read it.
//
// The format of the store rises before the first object is stored in protobuf, and falls after the last
// was rewritten. So servers that know the format, but do not read format.Protobuf, end at their start.
// Servers of before the format do start, and do not become ready, because they cannot read what is in
// protobuf. While they serve, only the list of servers keeps others from storing protobuf.
type formatKeeper struct {
	format *StorageFormat
	// mediaType is that in which objects are to be stored.
	mediaType string
	etcd      *etcdConnection
	servers   reencryption.Servers
	clock     clock.WithTicker
	// toJSON writes all objects again that are stored in protobuf.
	toJSON func(context.Context) (int, error)
	// agreedAt is since when all servers agree; zero if they do not. The store has had the format stored
	// since before that, so that all servers that came later have read it. revision wrote it last.
	agreedAt time.Time
	stored   int
	revision int64
	// isLimited means that this server stores protobuf only for a while after it was in the list.
	isLimited bool
	// restUntil is when this server tries again to store all as JSON.
	restUntil time.Time
}

// ensureFormat lets a server write protobuf from its start in a store in which there was nothing. In
// others there may be servers that do not read protobuf, also if the format is format.Protobuf, because
// versions of before the format do not look at it: then formatKeeper decides. It returns an error if
// this version cannot read the store.
func ensureFormat(ctx context.Context, kv clientv3.KV, storagePrefix string, extra *ExtraConfig) error {
	extra.StorageFormat.clock = extra.clock()
	ofNew := format.Writes
	if extra.StorageMediaType == runtime.ContentTypeProtobuf {
		ofNew = format.Protobuf
	}
	isNew, err := format.Ensure(ctx, kv, storagePrefix, version.Get(), ofNew)
	if isNew && ofNew == format.Protobuf {
		extra.StorageFormat.UseProtobuf()
	}
	return err
}

// run works until ctx is done.
func (k *formatKeeper) run(ctx context.Context) {
	ticker := k.clock.NewTicker(formatInterval)
	defer ticker.Stop()
	for {
		if err := k.look(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to change the format of the store, retrying")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// look does what there is to do.
func (k *formatKeeper) look(ctx context.Context) error {
	stored, revision, err := format.Read(ctx, k.etcd, k.etcd.prefix, version.Get())
	if err != nil {
		return err
	}
	isOfProtobuf := k.mediaType == runtime.ContentTypeProtobuf
	// That another server begins to write protobuf is no reason for this one to begin later.
	if stored.Format != k.stored || revision != k.revision && !isOfProtobuf {
		k.agreedAt = time.Time{}
	}
	k.stored, k.revision = stored.Format, revision
	if isOfProtobuf {
		return k.raise(ctx, stored, revision)
	}
	if stored.Format < format.Protobuf {
		return nil
	}
	return k.lower(ctx, revision)
}

// raise raises the format of the store, and then lets this server write protobuf, each if it is time.
func (k *formatKeeper) raise(ctx context.Context, stored format.Record, revision int64) error {
	isRaised := stored.Format >= format.Protobuf
	if k.format.IsProtobuf() {
		if err := k.keep(ctx); err != nil || isRaised {
			return err
		}
		return k.write(ctx, recordOf(format.Protobuf), revision) // another server lowered it before it saw this one
	}
	if k.isLimited {
		k.isLimited = false
		klog.FromContext(ctx).Info("Storing objects as JSON for a while, because this API server was not in the list of servers")
	}
	begun := k.clock.Now()
	agree, _, err := k.agree(ctx, writesJSON, writesProtobuf)
	if err != nil || !agree {
		return err
	}
	if !isRaised {
		return k.write(ctx, recordOf(format.Protobuf), revision)
	}
	// It is written again, so that no server lowers it which has begun to rewrite all as JSON: some of
	// what this server writes may be behind it, and this server may stop before the other one looks.
	if err := k.write(ctx, stored, revision); err != nil {
		return err
	}
	k.useProtobuf(begun)
	klog.FromContext(ctx).Info("Storing objects as protobuf, because all API servers read that")
	return nil
}

// keep lets this server store protobuf for another while, if it is in the list of servers. If its lease has
// ended, it stops before another server that does not see it may begin to rewrite all as JSON. When it is
// back, it begins anew, with the format of the store.
func (k *formatKeeper) keep(ctx context.Context) error {
	k.agreedAt = time.Time{}
	begun := k.clock.Now()
	said, self, err := k.servers.Said(ctx)
	if err != nil {
		return err
	}
	if _, listed := said[self]; listed || !k.isLimited {
		k.useProtobuf(begun)
	}
	return nil
}

// useProtobuf lets this server store protobuf, for a while after it has begun to read the list of servers.
func (k *formatKeeper) useProtobuf(begun time.Time) {
	k.format.useProtobufUntil(begun.Add(formatKept))
	k.isLimited = true
}

// lower rewrites all objects as JSON, if this server is the one to do it and it is time.
func (k *formatKeeper) lower(ctx context.Context, revision int64) error {
	agree, isFirst, err := k.agree(ctx, writesJSON)
	if err != nil || !agree || !isFirst || k.clock.Now().Before(k.restUntil) {
		return err
	}
	log := klog.FromContext(ctx)
	log.Info("Storing all objects as JSON")
	rewritten, err := k.toJSON(ctx)
	if err != nil {
		k.restUntil = k.clock.Now().Add(formatPause)
		return fmt.Errorf("storing all objects as JSON, which is tried again in %v: %w", formatPause, err)
	}
	if agree, _, err := k.agree(ctx, writesJSON); err != nil || !agree {
		return errors.Join(errFormatChanged, err)
	}
	if err := k.write(ctx, recordOf(format.Writes), revision); err != nil {
		return err
	}
	log.Info("All objects are stored as JSON, which earlier versions read", "rewritten", rewritten)
	return nil
}

var errFormatChanged = errors.New("an API server came meanwhile that is to store protobuf")

// recordOf is what this version writes down of a format.
func recordOf(to int) format.Record { return format.Record{Format: to, Version: version.Get()} }

// write writes down the format of the store.
func (k *formatKeeper) write(ctx context.Context, record format.Record, revision int64) error {
	written, err := format.Write(ctx, k.etcd, k.etcd.prefix, record, revision)
	if err == nil && !written {
		return errors.New("another API server has written the format of the store meanwhile")
	}
	return err
}

// agree reports whether all servers have been for a while of those that are to write one of these. isFirst
// means that this server is the first of all by name.
func (k *formatKeeper) agree(ctx context.Context, forms ...string) (agree, isFirst bool, err error) {
	said, self, err := k.servers.Said(ctx)
	if err != nil {
		return false, false, err
	}
	_, agree = said[self]
	isFirst = true
	for name := range said {
		agree = agree && slices.ContainsFunc(strings.Split(name, "."), func(part string) bool { return slices.Contains(forms, part) })
		isFirst = isFirst && self <= name
	}
	now := k.clock.Now()
	if !agree {
		k.agreedAt = time.Time{}
		return false, isFirst, nil
	}
	if k.agreedAt.IsZero() {
		k.agreedAt = now
	}
	return !now.Before(k.agreedAt.Add(formatSettle)), isFirst, nil
}
