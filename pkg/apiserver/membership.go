// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
	"github.com/sandlot-io/sandlot/pkg/apiserver/storekeys"
	"github.com/sandlot-io/sandlot/pkg/store/reencryption"
)

// memberTTL is how long a server that died still counts as a member, in seconds.
// Until then the others leave its share of the pools for last.
const memberTTL = 15

// errLeaseLost means that the list of servers can no longer be relied on.
var errLeaseLost = errors.New("the lease of this server in etcd ended")

// membership keeps the list of the servers of one store, this one among them. It is
// for preferences only: when it is wrong, servers want the same sandboxes, and
// the store decides as always.
type membership struct {
	client *clientv3.Client
	// prefix begins the keys of all servers, and only those.
	prefix string
	// self is the name of this server, different for each start of it. It ends in what the server
	// can do that others may have to know: see serverID and agentruntime.KnowsPoolTokens.
	self string
	// changed is called with the names of all servers whenever they change.
	changed func(self string, servers []string)

	mu sync.Mutex
	// said is what this server says of itself beside its name. unsure means that the list
	// may have something else, because it is not known what became of a write.
	said   string
	unsure bool
}

var _ reencryption.Servers = &membership{}

func newMembership(client *clientv3.Client, storagePrefix, mediaType string, changed func(self string, servers []string)) *membership {
	return &membership{
		client: client, prefix: path.Join("/", storagePrefix, storekeys.Servers) + "/",
		self: agentruntime.ServerName(serverID(string(uuid.NewUUID()), mediaType)), changed: changed,
	}
}

// run keeps this server in the list and notifies of changes, until ctx is done.
func (m *membership) run(ctx context.Context) {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 5, Cap: 30 * time.Second}
	repeat(ctx, clock.RealClock{}, backoff, func(ctx context.Context) {
		if err := m.join(ctx); ctx.Err() == nil {
			klog.FromContext(ctx).Info("Rejoining the servers of the store", "reason", err)
			// Alone as far as this server knows: all sandboxes are as good.
			m.changed(m.self, nil)
		}
	})
}

// repeat runs sessions one after the other until ctx is done, with pauses that grow
// as long as none of them lasts. After one that did, the next begins at once.
func repeat(ctx context.Context, clk clock.PassiveClock, backoff wait.Backoff, session func(context.Context)) {
	for ctx.Err() == nil {
		_ = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			began := clk.Now()
			session(ctx)
			return clk.Since(began) > memberTTL*time.Second, nil
		}) // fails when ctx is done, and then only
	}
}

// join enters this server and follows the list until something fails.
func (m *membership) join(ctx context.Context) error {
	session, err := concurrency.NewSession(m.client, concurrency.WithTTL(memberTTL), concurrency.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("making a lease in etcd: %w", err)
	}
	defer func() {
		session.Orphan() // ends its goroutine
		// The others need not wait for the lease to run out.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = m.client.Revoke(ctx, session.Lease()) // or it runs out
	}()
	list, err := m.enter(ctx, session.Lease())
	if err != nil {
		return err
	}
	servers := map[string]bool{}
	for _, kv := range list.Kvs {
		servers[m.name(kv.Key)] = true
	}
	m.notify(servers)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := m.client.Watch(ctx, m.prefix, clientv3.WithPrefix(), clientv3.WithRev(list.Header.Revision+1))
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-session.Done():
			return errLeaseLost
		case change, ok := <-changes:
			if err := change.Err(); err != nil || !ok {
				return fmt.Errorf("watching %s: %w", m.prefix, errors.Join(err, ctx.Err()))
			}
			before := maps.Clone(servers)
			for _, event := range change.Events {
				if event.Type == clientv3.EventTypeDelete {
					delete(servers, m.name(event.Kv.Key))
				} else {
					servers[m.name(event.Kv.Key)] = true
				}
			}
			if !maps.Equal(before, servers) { // or one only said something
				m.notify(servers)
			}
		}
	}
}

// enter puts this server into the list and reads it, if that can be done before
// the lease would have run out: calls to an etcd that does not answer wait for it,
// and would not notice that the lease has ended.
func (m *membership) enter(ctx context.Context, lease clientv3.LeaseID) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, memberTTL*time.Second)
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.write(ctx, lease); err != nil {
		return nil, err
	}
	list, err := m.client.Get(ctx, m.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", m.prefix, err)
	}
	return list, nil
}

// Say implements reencryption.Servers. A server that is not in the list at this moment
// says it when it comes back.
func (m *membership) Say(ctx context.Context, what string) error {
	// enter waits for m.mu.
	ctx, cancel := context.WithTimeout(ctx, memberTTL*time.Second)
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.said == what && !m.unsure {
		return nil
	}
	m.said, m.unsure = what, true
	return m.write(ctx, clientv3.NoLease)
}

// write writes m.said into the entry of this server in the list, under a lease. With NoLease it
// keeps the lease of the entry, and writes nothing if there is no entry. Each write expects the
// revision that was just read, so that an earlier write that etcd carries out late does not
// replace a newer one. m.mu is held.
func (m *membership) write(ctx context.Context, lease clientv3.LeaseID) error {
	key, under := m.prefix+m.self, clientv3.WithLease(lease)
	if lease == clientv3.NoLease {
		under = clientv3.WithIgnoreLease()
	}
	for {
		found, err := m.client.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("reading %s: %w", key, err)
		}
		var at int64
		if len(found.Kvs) > 0 {
			at = found.Kvs[0].ModRevision
		} else if lease == clientv3.NoLease {
			return nil // still unsure: an earlier write may create the entry late
		}
		written, err := m.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", at)).
			Then(clientv3.OpPut(key, m.said, under)).
			Commit()
		if err != nil {
			return fmt.Errorf("writing %s: %w", key, err)
		}
		if written.Succeeded {
			m.unsure = false
			return nil
		}
	}
}

// Said implements reencryption.Servers.
func (m *membership) Said(ctx context.Context) (map[string]string, string, error) {
	list, err := m.client.Get(ctx, m.prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, "", fmt.Errorf("listing %s: %w", m.prefix, err)
	}
	said := map[string]string{}
	for _, kv := range list.Kvs {
		said[m.name(kv.Key)] = string(kv.Value)
	}
	return said, m.self, nil
}

func (m *membership) name(key []byte) string { return strings.TrimPrefix(string(key), m.prefix) }

func (m *membership) notify(servers map[string]bool) {
	names := make([]string, 0, len(servers))
	for name := range servers {
		names = append(names, name)
	}
	slices.Sort(names)
	m.changed(m.self, names)
}
