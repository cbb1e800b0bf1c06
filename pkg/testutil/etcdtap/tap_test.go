// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtap_test

import (
	"context"
	"maps"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/etcdtap"
)

func connect(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestTap: whatever is not held passes, watches too; what is held before is not written,
// and what is held after is.
func TestTap(t *testing.T) {
	etcd := testutil.StartEtcd(t)[0]
	direct := connect(t, etcd)
	held := make(chan map[string]string, 10)
	tap := etcdtap.Start(t, etcd, func(txn etcdtap.Txn) etcdtap.Verdict {
		switch {
		case txn.Puts["/before"] != "":
			return etcdtap.HoldBefore
		case txn.Puts["/after"] != "":
			return etcdtap.HoldAfter
		}
		return etcdtap.Pass
	}, func(txn etcdtap.Txn) { held <- txn.Puts })
	client := connect(t, tap.URL)

	events := client.Watch(t.Context(), "/", clientv3.WithPrefix())
	for key, passes := range map[string]bool{"/free": true, "/before": false, "/after": false} {
		ctx, leave := context.WithCancel(t.Context())
		answered := make(chan error, 1)
		go func() {
			_, err := client.Txn(ctx).Then(clientv3.OpPut("/other", "x"), clientv3.OpPut(key, "1")).Commit()
			answered <- err
		}()
		if !passes {
			if puts := <-held; !maps.Equal(puts, map[string]string{"/other": "x", key: "1"}) {
				t.Errorf("%s: told of %q", key, puts)
			}
			leave()
		}
		if err := <-answered; (err == nil) != passes {
			t.Errorf("%s: answered %v", key, err)
		}
		leave()
		got, err := direct.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if written := len(got.Kvs) == 1; written != (key != "/before") {
			t.Errorf("%s: written %t", key, written)
		}
	}
	if response := <-events; len(response.Events) != 2 {
		t.Errorf("the watch tells of %v", response.Events)
	}
}
