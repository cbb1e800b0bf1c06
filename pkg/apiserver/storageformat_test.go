// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/apiserver/storekeys"
	"github.com/sandlot-io/sandlot/pkg/store/format"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// inMediaType lets a server store objects in a media type, by a clock.
func inMediaType(mediaType string, clock *clocktesting.FakeClock) testutil.Option {
	return testutil.WithConfig(func(c *apiserver.Config) {
		c.ExtraConfig.StorageMediaType, c.ExtraConfig.Clock = mediaType, clock
	})
}

// templatesOf lists the templates of a server.
func templatesOf(t *testing.T, s *testutil.Server) []v1alpha1.SandboxTemplate {
	t.Helper()
	list, err := s.Client.AgentsV1alpha1().SandboxTemplates("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// storedFormats reads the store itself.
type storedFormats struct{ *clientv3.Client }

func newStoredFormats(t *testing.T, servers []string) storedFormats {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: servers, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return storedFormats{client}
}

// count returns how many objects are stored in JSON and in protobuf, and the format of the store.
func (s storedFormats) count(ctx context.Context, t *testing.T) (js, protobuf, is int) {
	t.Helper()
	all, err := s.Get(ctx, options.EtcdPrefix+"/"+v1alpha1.GroupName+"/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range all.Kvs {
		switch {
		case bytes.HasPrefix(kv.Value, []byte(`{"kind":`)):
			js++
		case bytes.HasPrefix(kv.Value, []byte("k8s\x00")):
			protobuf++
		default:
			t.Errorf("%s is stored as %.20q", kv.Key, kv.Value)
		}
	}
	stored, _, err := format.Read(ctx, s, options.EtcdPrefix, "test")
	if err != nil {
		t.Fatal(err)
	}
	return js, protobuf, stored.Format
}

func (s storedFormats) expect(t *testing.T, js, protobuf, is int) {
	t.Helper()
	if gotJS, gotProtobuf, got := s.count(t.Context(), t); gotJS != js || gotProtobuf != protobuf || got != is {
		t.Errorf("%d objects in JSON and %d in protobuf, format %d, want %d, %d, %d", gotJS, gotProtobuf, got, js, protobuf, is)
	}
}

// TestStorageFormat: what an earlier version has stored as JSON is read, and becomes protobuf when it is
// next written, but not while a server of an earlier version is in the list. When all servers are to
// store JSON, all objects become JSON again, and the store is one for earlier versions.
func TestStorageFormat(t *testing.T) {
	t.Parallel()
	etcd := testutil.StartEtcd(t)
	stored := newStoredFormats(t, etcd)
	clock := clocktesting.NewFakeClock(time.Now())
	names := []string{"one", "two", "three"}
	update := func(s *testutil.Server, name string) {
		t.Helper()
		template, err := s.Client.AgentsV1alpha1().SandboxTemplates("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		template.Annotations = map[string]string{"updated": fmt.Sprint(template.ResourceVersion)}
		if _, err := s.Client.AgentsV1alpha1().SandboxTemplates("default").Update(t.Context(), template, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	earlier := testutil.Start(t, testutil.WithEtcd(etcd), inMediaType(runtime.ContentTypeJSON, clock))
	for _, name := range names {
		earlier.Template(t, "default", name)
	}
	earlier.Set(t, "default", "pool", 0)
	stored.expect(t, 4, 0, format.Writes)
	old := templatesOf(t, earlier)
	earlier.Stop()

	const member = options.EtcdPrefix + "/" + storekeys.Servers + "/of-an-earlier-version.pool-tokens"
	if _, err := stored.Put(t.Context(), member, ""); err != nil {
		t.Fatal(err)
	}
	server := testutil.Start(t, testutil.WithEtcd(etcd), inMediaType(runtime.ContentTypeProtobuf, clock))
	sameObjects(t, "templates of an earlier version", old, templatesOf(t, server))
	look := func() { // at least twice, however slow this machine is
		for range 4 {
			expect.Eventually(t.Context(), t, func(context.Context) error {
				if !clock.HasWaiters() {
					return fmt.Errorf("the server does not wait for the clock")
				}
				return nil
			})
			clock.Step(time.Minute)
			time.Sleep(50 * time.Millisecond)
		}
	}
	look()
	update(server, "one")
	stored.expect(t, 4, 0, format.Writes)

	if _, err := stored.Delete(t.Context(), member); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(context.Context) error {
		clock.Step(time.Minute)
		update(server, "one")
		if js, protobuf, is := stored.count(t.Context(), t); protobuf != 1 {
			return fmt.Errorf("%d objects are JSON and %d protobuf, format %d", js, protobuf, is)
		}
		return nil
	})
	stored.expect(t, 3, 1, format.Protobuf)
	update(server, "two")
	stored.expect(t, 2, 2, format.Protobuf)
	server.Stock(t, server.Set(t, "default", "stock", 2), 0, 2)
	if _, err := server.Client.AgentsV1alpha1().SandboxClaims("default").Create(t.Context(), builders.Claim("stock", 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stored.expect(t, 2, 6, format.Protobuf)
	mixed := templatesOf(t, server)

	// A server that is to store JSON does so at once, beside the other one. Nothing is rewritten.
	back := testutil.Start(t, testutil.WithEtcd(etcd), inMediaType(runtime.ContentTypeJSON, clock))
	sameObjects(t, "templates in JSON and protobuf", mixed, templatesOf(t, back))
	look()
	update(back, "two")
	stored.expect(t, 3, 5, format.Protobuf)
	mixed = templatesOf(t, back)
	server.Stop()
	expect.Eventually(t.Context(), t, func(context.Context) error {
		clock.Step(time.Minute)
		if js, protobuf, is := stored.count(t.Context(), t); protobuf != 0 || is != format.Writes {
			return fmt.Errorf("%d objects are JSON and %d protobuf, format %d", js, protobuf, is)
		}
		return nil
	})
	stored.expect(t, 8, 0, format.Writes)
	for i, template := range templatesOf(t, back) {
		template.ResourceVersion = mixed[i].ResourceVersion
		sameObjects(t, "template that was rewritten", &mixed[i], &template)
	}
}

// TestNewStoreIsProtobuf: a store in which there is nothing is protobuf from the start, and stays so. An
// API server of an earlier version would not start on it.
func TestNewStoreIsProtobuf(t *testing.T) {
	t.Parallel()
	etcd := testutil.StartEtcd(t)
	stored := newStoredFormats(t, etcd)
	for i := range 2 {
		server := testutil.Start(t, testutil.WithEtcd(etcd))
		server.Template(t, "default", fmt.Sprint("template-", i))
		stored.expect(t, 0, i+1, format.Protobuf)
		server.Stop()
	}
	wrong := testutil.WithOptions(func(o *options.Options) { o.Etcd.DefaultStorageMediaType = runtime.ContentTypeYAML })
	if err := testutil.Refusal(t, testutil.WithEtcd(etcd), wrong); err == nil || !strings.Contains(err.Error(), "--storage-media-type") {
		t.Errorf("to store YAML: %v", err)
	}
}
