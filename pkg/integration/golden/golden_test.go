// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"bytes"
	"encoding/json"
	"path"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestGolden restores the store of each release into an etcd and starts this server on it.
// Every object is as that release answered it, in every API; claims that were unfinished
// come to their end; and the invariants hold.
func TestGolden(t *testing.T) {
	stores, err := filepath.Glob(filepath.Join("testdata", "*"+storeSuffix))
	if err != nil || len(stores) == 0 {
		t.Fatalf("there are no stores in testdata: %v, %v", stores, err)
	}
	for _, store := range stores {
		release := strings.TrimSuffix(store, storeSuffix)
		t.Run(filepath.Base(release), func(t *testing.T) {
			t.Parallel()
			check(t, restore(t, store), readAnswers(t, release+answersSuffix))
		})
	}
}

// check holds servers on a store to the answers that are expected of it.
func check(t *testing.T, etcd []string, want map[string]answers) {
	t.Helper()
	for prefix, encrypted := range prefixes {
		s := testutil.Start(t, testutil.WithEtcd(etcd), at(prefix, encrypted))
		compare(t, want[prefix], readAll(t, s), strict)
		finish(t, s)
		for _, namespace := range namespacesOf(t, s) {
			if namespace != everyField {
				expect.Invariants(t, s.Client.AgentsV1alpha1(), namespace)
			}
		}
	}
}

// TestFieldsOfALaterVersion starts this server on a store to which a later version has
// written: objects have fields that this one does not know, as they have for it after a
// downgrade. It reads the others.
func TestFieldsOfALaterVersion(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]string{"newest": newest(t), "JSON": filepath.Join("testdata", "v0.1.0-json")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := restore(t, release+storeSuffix)
			addFields(t, etcd)
			s := testutil.Start(t, testutil.WithEtcd(etcd), at(options.EtcdPrefix, ""))
			compare(t, readAnswers(t, release+answersSuffix)[options.EtcdPrefix], readAll(t, s), rewritten)
			finish(t, s)
			expect.Invariants(t, s.Client.AgentsV1alpha1(), states)
		})
	}
}

// addFields adds unknown fields to each object that is stored in plain text: beside the
// others, in the spec and in the status.
func addFields(t *testing.T, etcd []string) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: etcd, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	stored, err := client.Get(t.Context(), path.Join(options.EtcdPrefix, v1alpha1.GroupName)+"/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range stored.Kvs {
		content := withFields(t, kv.Value)
		if _, err := client.Put(t.Context(), string(kv.Key), string(content)); err != nil {
			t.Fatal(err)
		}
	}
	if len(stored.Kvs) == 0 {
		t.Fatal("the store has no objects")
	}
}

// withFields adds unknown fields to an object, in the format in which it is stored.
func withFields(t *testing.T, stored []byte) []byte {
	t.Helper()
	if message, ok := bytes.CutPrefix(stored, []byte("k8s\x00")); ok {
		return append([]byte("k8s\x00"), withFieldsOfProtobuf(t, message)...)
	}
	var object map[string]any
	decoder := json.NewDecoder(bytes.NewReader(stored))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		t.Fatalf("%.100q: %v", stored, err)
	}
	later := map[string]any{"and": []any{"more", 1}}
	object["later"] = later
	for _, part := range []string{"spec", "status"} {
		if fields, ok := object[part].(map[string]any); ok {
			fields["later"] = later
		}
	}
	content, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func withFieldsOfProtobuf(t *testing.T, message []byte) []byte {
	t.Helper()
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(message); err != nil {
		t.Fatal(err)
	}
	later := protowire.AppendString(protowire.AppendTag(nil, 999, protowire.BytesType), "later")
	unknown.Raw = append(unknown.Raw, later...)
	const spec, status = 2, 3 // a second message of a field is merged with the first
	for _, part := range []protowire.Number{spec, status} {
		unknown.Raw = protowire.AppendBytes(protowire.AppendTag(unknown.Raw, part, protowire.BytesType), later)
	}
	content, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return content
}
