// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	etcdOne  = "etcd/txn/c1"
	etcdMany = "etcd/txn/c64"

	// About as much as the server stores.
	claimValueBytes   = 1800
	sandboxValueBytes = 2900
)

// runEtcd measures bare transactions that write what a claim writes: a new key,
// and one that must not have changed. No server can be faster than its store.
func (b *bench) runEtcd(ctx context.Context) (err error) {
	if !b.wants(etcdOne) && !b.wants(etcdMany) {
		return nil
	}
	etcd, client, err := startEtcd(ctx, filepath.Join(b.dir, "etcd"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close(), etcd.Close()) }()
	for _, c := range []struct {
		name           string
		clients, count int
	}{
		{etcdOne, 1, b.few()},
		{etcdMany, manyClients, 2 * b.count},
	} {
		if !b.wants(c.name) {
			continue
		}
		r, err := b.runTransactions(ctx, client, c.name, c.clients, c.count)
		if err != nil {
			return err
		}
		if err := b.report(r); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) runTransactions(ctx context.Context, client *clientv3.Client, name string, clients, count int) (*result, error) {
	stock, err := putSandboxes(ctx, client, name, b.operations(count))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	value, sandbox := strings.Repeat("c", claimValueBytes), strings.Repeat("t", sandboxValueBytes)
	all, err := compare(ctx, name, clients, b.rounds, []arm{{name: "transaction", count: count, do: func(ctx context.Context, _ int) error {
		taken := <-stock
		claim := claimKeys + "bench/" + newName("claim")
		answer, err := client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(claim), "=", 0), clientv3.Compare(clientv3.ModRevision(taken.key), "=", taken.revision)).
			Then(clientv3.OpPut(claim, value), clientv3.OpPut(taken.key, sandbox)).
			Else(clientv3.OpGet(claim, clientv3.WithKeysOnly()), clientv3.OpGet(taken.key, clientv3.WithKeysOnly())).
			Commit()
		if err == nil && !answer.Succeeded {
			err = fmt.Errorf("the transaction on %s was refused", taken.key)
		}
		return err
	}}})
	if err != nil {
		return nil, err
	}
	one := all[0]
	return &result{Case: name, Clients: clients, etcdFigures: &etcdFigures{
		PerS: number(one.rate()), P50: number(one.p50()), P99: number(one.p99()),
	}}, nil
}

// stored is a key at a revision.
type stored struct {
	key      string
	revision int64
}

// putSandboxes writes n keys for transactions to take.
func putSandboxes(ctx context.Context, client *clientv3.Client, name string, n int) (<-chan stored, error) {
	stock := make(chan stored, n)
	value := strings.Repeat("s", sandboxValueBytes)
	for len(stock) < n {
		var puts []clientv3.Op
		var keys []string
		for len(stock)+len(puts) < n && len(puts) < fillTxn {
			key := sandboxKeys + "bench/" + newName(strings.ReplaceAll(name, "/", "-"))
			keys = append(keys, key)
			puts = append(puts, clientv3.OpPut(key, value))
		}
		answer, err := client.Txn(ctx).Then(puts...).Commit()
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			stock <- stored{key, answer.Header.Revision}
		}
	}
	return stock, nil
}
