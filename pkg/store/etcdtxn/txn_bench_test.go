// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtxn_test

import (
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"

	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// BenchmarkCommit creates a claim and updates sandboxes of 3 KiB, as a bind
// does, on an etcd that syncs to disk: through etcdtxn, and as the yardstick in
// a bare etcd transaction of the same keys and about the same bytes.
func BenchmarkCommit(b *testing.B) {
	config := testserver.NewTestConfig(b)
	config.UnsafeNoFsync = false
	etcd := testserver.RunEtcd(b, config)
	closeAtEnd(b, etcd)
	claims := etcdtxn.NewResource(plainConfig(), "/claims")
	boxes := etcdtxn.NewResource(plainConfig(), "/boxes")
	client := etcdtxn.NewClient(etcd.KV)

	claim := pod("claim", sized(1<<10))
	box := pod("box", sized(2500))
	bytes := string(make([]byte, 3<<10))
	claimNumber := 0
	nextClaim := func() string {
		claimNumber++
		return claims.Key("ns", fmt.Sprint("claim-", claimNumber))
	}

	for _, n := range []int{1, 100} {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = boxes.Key("ns", fmt.Sprint("box-", i))
			if _, err := etcd.Put(b.Context(), "/registry"+keys[i], bytes); err != nil {
				b.Fatal(err)
			}
		}
		// Every transaction moves all of them, so that they share a revision after
		// the first, which finds them as they were put.
		at := make([]int64, n)
		reset := func() {
			for i, key := range keys {
				at[i] = raw(b, etcd.KV, "/registry"+key).ModRevision
			}
		}
		moveTo := func(revision int64) {
			for i := range at {
				at[i] = revision
			}
		}
		report := func(b *testing.B) {
			b.ReportAllocs()
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "sandboxes/s")
		}
		b.Run(fmt.Sprintf("sandboxes=%d/by=etcd", n), func(b *testing.B) {
			reset()
			for b.Loop() {
				claimKey := "/registry" + nextClaim()
				compares := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(claimKey), "=", 0)}
				puts := []clientv3.Op{clientv3.OpPut(claimKey, bytes[:1<<10])}
				reads := []clientv3.Op{clientv3.OpGet(claimKey, clientv3.WithKeysOnly())}
				for i, key := range keys {
					key = "/registry" + key
					compares = append(compares, clientv3.Compare(clientv3.ModRevision(key), "=", at[i]))
					puts = append(puts, clientv3.OpPut(key, bytes))
					reads = append(reads, clientv3.OpGet(key, clientv3.WithKeysOnly()))
				}
				resp, err := etcd.Txn(b.Context()).If(compares...).Then(puts...).Else(reads...).Commit()
				if err != nil || !resp.Succeeded {
					b.Fatal(resp, err)
				}
				moveTo(resp.Header.Revision)
			}
			report(b)
		})
		b.Run(fmt.Sprintf("sandboxes=%d/by=etcdtxn", n), func(b *testing.B) {
			reset()
			drafts := make([]*example.Pod, n)
			for i := range drafts {
				drafts[i] = box.DeepCopy()
			}
			for b.Loop() {
				txn := client.Txn()
				mustAdd(b, txn.Create(b.Context(), claims, nextClaim(), claim))
				for i, key := range keys {
					mustAdd(b, txn.Update(b.Context(), boxes, key, drafts[i], at[i]))
				}
				if err := txn.Commit(b.Context()); err != nil {
					b.Fatal(err)
				}
				moveTo(version(b, claim))
			}
			report(b)
		})
	}
}
