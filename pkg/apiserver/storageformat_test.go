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

const ofEarlier = options.EtcdPrefix + "/" + storekeys.Servers + "/of-an-earlier-version.pool-tokens"

// addEarlier adds a server of an earlier version to the list of servers.
func (s storedFormats) addEarlier(t *testing.T) {
	t.Helper()
	if _, err := s.Put(t.Context(), ofEarlier, ""); err != nil {
		t.Fatal(err)
	}
}

func (s storedFormats) removeEarlier(t *testing.T) {
	t.Helper()
	if _, err := s.Delete(t.Context(), ofEarlier); err != nil {
		t.Fatal(err)
	}
}

// lookTwice lets a server look at the format of the store at least twice, however slow this machine is.
func lookTwice(t *testing.T, clock *clocktesting.FakeClock) {
	t.Helper()
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

	stored.addEarlier(t)
	server := testutil.Start(t, testutil.WithEtcd(etcd), inMediaType(runtime.ContentTypeProtobuf, clock))
	sameObjects(t, "templates of an earlier version", old, templatesOf(t, server))
	lookTwice(t, clock)
	update(server, "one")
	stored.expect(t, 4, 0, format.Writes)

	stored.removeEarlier(t)
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
	lookTwice(t, clock)
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

// TestTooLargeAsJSON: an object that is too large for etcd as JSON stays protobuf, and so does the format of
// the store, until it is smaller. All others become JSON.
func TestTooLargeAsJSON(t *testing.T) {
	t.Parallel()
	etcd := testutil.StartEtcd(t)
	stored := newStoredFormats(t, etcd)
	server := testutil.Start(t, testutil.WithEtcd(etcd))
	server.Template(t, "default", "z-small")
	large := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "a-large", Annotations: map[string]string{"a": strings.Repeat("<", 260_000)}, // six bytes each in JSON
	}}
	large.Spec.Template = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"metadata":{"annotations":{"a":%q}},"spec":{"containers":[{"name":"main","image":"busybox"}]}}`, strings.Repeat("x", 100_000))}
	large, err := inProtobuf(t, server).SandboxTemplates("default").Create(t.Context(), large, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored.expect(t, 0, 2, format.Protobuf)
	server.Stop()

	clock := clocktesting.NewFakeClock(time.Now())
	back := testutil.Start(t, testutil.WithEtcd(etcd), inMediaType(runtime.ContentTypeJSON, clock))
	expectCount := func(js, protobuf, is int) {
		t.Helper()
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			clock.Step(time.Minute)
			if gotJS, gotProtobuf, got := stored.count(ctx, t); gotJS != js || gotProtobuf != protobuf || got != is {
				return fmt.Errorf("%d objects are JSON and %d protobuf, format %d", gotJS, gotProtobuf, got)
			}
			return nil
		})
	}
	expectCount(1, 1, format.Protobuf)
	large.Annotations = nil
	if _, err := inProtobuf(t, back).SandboxTemplates("default").Update(t.Context(), large, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectCount(2, 0, format.Writes)
}

// TestNewStoreIsProtobuf: a store in which there is nothing is protobuf from the start. The next server
// on it waits until it has seen that all servers read protobuf, because its format keeps no server of
// before the format away.
func TestNewStoreIsProtobuf(t *testing.T) {
	t.Parallel()
	etcd := testutil.StartEtcd(t)
	stored := newStoredFormats(t, etcd)
	server := testutil.Start(t, testutil.WithEtcd(etcd))
	server.Template(t, "default", "first")
	stored.expect(t, 0, 1, format.Protobuf)
	server.Stop()

	stored.addEarlier(t)
	clock := clocktesting.NewFakeClock(time.Now())
	server = testutil.Start(t, testutil.WithEtcd(etcd), inMediaType(runtime.ContentTypeProtobuf, clock))
	lookTwice(t, clock)
	server.Template(t, "default", "second")
	stored.expect(t, 1, 1, format.Protobuf)
	stored.removeEarlier(t)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		clock.Step(time.Minute)
		server.Template(t, "default", fmt.Sprint("later-", clock.Now().Unix()))
		if js, protobuf, is := stored.count(ctx, t); protobuf != 2 {
			return fmt.Errorf("%d objects are JSON and %d protobuf, format %d", js, protobuf, is)
		}
		return nil
	})
	wrong := testutil.WithOptions(func(o *options.Options) { o.Etcd.DefaultStorageMediaType = runtime.ContentTypeYAML })
	if err := testutil.Refusal(t, testutil.WithEtcd(etcd), wrong); err == nil || !strings.Contains(err.Error(), "--storage-media-type") {
		t.Errorf("to store YAML: %v", err)
	}
}
