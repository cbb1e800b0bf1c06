// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtxn_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
)

// TestBytes: what etcd holds after etcdtxn wrote an object is what it holds
// after the generic store wrote it at the same key.
func TestBytes(t *testing.T) {
	etcd, client := start(t)
	for codecName, codec := range map[string]runtime.Codec{"json": jsonCodec, "protobuf": protobufCodec} {
		pods := newKind(t, etcd, kindOptions{resource: "/pods-" + codecName, codec: codec})
		tests := map[string]struct {
			change func(*example.Pod)
		}{
			"everything":    {func(*example.Pod) {}},
			"nothing":       {func(p *example.Pod) { *p = example.Pod{} }},
			"selfLink":      {func(p *example.Pod) { p.SetSelfLink("/apis/x") }},
			"another name":  {func(p *example.Pod) { p.Name = "other-than-its-key" }},
			"large":         {sized(300_000)},
			"no TypeMeta":   {func(p *example.Pod) { p.Kind, p.APIVersion = "", "" }},
			"odd TypeMeta":  {func(p *example.Pod) { p.Kind, p.APIVersion = "Odd", "odd/v9" }},
			"being deleted": {func(p *example.Pod) { p.DeletionTimestamp, p.Finalizers = &p.CreationTimestamp, []string{"a/b"} }},
		}
		for name, tc := range tests {
			t.Run(codecName+"/"+name, func(t *testing.T) {
				key := "/registry/pods-" + codecName + "/ns/a"
				original := pod("a", tc.change)
				if err := pods.store.Create(t.Context(), pods.key("a"), original.DeepCopy(), nil, 0); err != nil {
					t.Fatal(err)
				}
				want := string(raw(t, etcd.KV, key).Value)
				pods.remove(t, "a")

				txn, created := client.Txn(), original.DeepCopy()
				created.ResourceVersion = "12345" // is not stored
				mustAdd(t, txn.Create(t.Context(), pods.Resource, pods.key("a"), created))
				if err := txn.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, string(raw(t, etcd.KV, key).Value)); diff != "" {
					t.Errorf("created (-generic store +etcdtxn):\n%s", diff)
				}

				change := func(p *example.Pod) { p.Labels, p.Status.Phase = map[string]string{"new": "yes"}, "Done" }
				pods.update(t, "a", change)
				kv := raw(t, etcd.KV, key)
				want = string(kv.Value)
				mustAdd(t, etcdPut(t, etcd.KV, key, "overwritten"))
				updated := original.DeepCopy()
				change(updated)
				txn = client.Txn()
				mustAdd(t, txn.Update(t.Context(), pods.Resource, pods.key("a"), updated, raw(t, etcd.KV, key).ModRevision))
				if err := txn.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, string(raw(t, etcd.KV, key).Value)); diff != "" {
					t.Errorf("updated (-generic store +etcdtxn):\n%s", diff)
				}
				pods.remove(t, "a")
			})
		}
	}
}

// TestReadEachOther: with and without encryption at rest, etcdtxn and the
// generic store read what the other wrote, and no value is of use elsewhere.
func TestReadEachOther(t *testing.T) {
	etcd, client := start(t)
	tests := map[string]struct {
		transformer, other value.Transformer
		secret             bool
	}{
		"plain":     {},
		"encrypted": {transformer: encrypted(t, 1), other: encrypted(t, 2), secret: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pods := newKind(t, etcd, kindOptions{resource: "/" + name, codec: protobufCodec, transformer: tc.transformer})
			prefix := "/registry/" + name + "/ns/"

			// etcdtxn writes.
			at := pods.create(t, client, "ours")
			want := pod("ours")
			want.ResourceVersion = string(appendInt(at))
			got, err := pods.get(t, "ours")
			if err != nil {
				t.Fatalf("the generic store reads: %v", err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the generic store reads (-written +read):\n%s", diff)
			}
			got = pods.update(t, "ours", func(p *example.Pod) { p.Status.Phase = "Done" })
			if v := version(t, got); v <= at {
				t.Errorf("the generic store updates it to version %d, it was at %d", v, at)
			}

			// The generic store writes.
			theirs := &example.Pod{}
			if err := pods.store.Create(t.Context(), pods.key("theirs"), pod("theirs"), theirs, 0); err != nil {
				t.Fatal(err)
			}
			got = &example.Pod{}
			created, err := client.Get(t.Context(), pods.Resource, pods.key("theirs"), got)
			if err != nil || created != version(t, theirs) {
				t.Fatalf("Get() = %d, %v", created, err)
			}
			if diff := cmp.Diff(theirs, got); diff != "" {
				t.Errorf("Get (-written +read):\n%s", diff)
			}

			for _, name := range []string{"ours", "theirs"} {
				data := string(raw(t, etcd.KV, prefix+name).Value)
				if got := !strings.Contains(data, "10.0.0.1"); got != tc.secret {
					t.Errorf("%s is secret in etcd: %t, want %t: %q", name, got, tc.secret, data)
				}
				mustAdd(t, etcdPut(t, etcd.KV, prefix+name+"-moved", data))
				_, err := pods.get(t, name+"-moved")
				if got := err != nil; got != tc.secret {
					t.Errorf("the generic store on %s at another key: %v", name, err)
				}
				_, err = client.Get(t.Context(), pods.Resource, pods.key(name+"-moved"), &example.Pod{})
				if got := err != nil; got != tc.secret {
					t.Errorf("Get of %s at another key: %v", name, err)
				}
			}
			if !tc.secret {
				return
			}
			for name, transformer := range map[string]value.Transformer{"another secret": tc.other, "no secret": nil} {
				stranger := newKind(t, etcd, kindOptions{resource: "/encrypted", codec: protobufCodec, transformer: transformer})
				want := stranger.store.Get(t.Context(), stranger.key("ours"), storage.GetOptions{}, &example.Pod{})
				_, err := client.Get(t.Context(), stranger.Resource, stranger.key("ours"), &example.Pod{})
				if want == nil || err == nil || !strings.Contains(err.Error(), "decrypting") {
					t.Errorf("with %s: Get: %v, the generic store: %v", name, err, want)
				}
			}
		})
	}
}

func TestGet(t *testing.T) {
	etcd, client := start(t)
	pods := newKind(t, etcd, kindOptions{resource: "/pods"})
	at := pods.create(t, client, "a")
	mustAdd(t, etcdPut(t, etcd.KV, "/registry/pods/ns/broken", "{"))
	tests := map[string]struct {
		key   string
		found bool
		fails bool
	}{
		"there":     {pods.key("a"), true, false},
		"not there": {pods.key("b"), false, false},
		"a folder":  {pods.Key("ns", ""), false, false},
		"broken":    {pods.key("broken"), true, true},
		"bad key":   {"/other/ns/a", false, true},
		"no key":    {"", false, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := &example.Pod{}
			created, err := client.Get(t.Context(), pods.Resource, tc.key, got)
			if (created != 0) != tc.found || (err != nil) != tc.fails {
				t.Errorf("Get() = %d, %v", created, err)
			}
			if tc.found && !tc.fails && version(t, got) != at {
				t.Errorf("version %d, want %d", version(t, got), at)
			}
		})
	}
	// An object written again is at its newest version, and was created at its first.
	newest := version(t, pods.update(t, "a", func(p *example.Pod) { p.Status.Phase = "Done" }))
	got := &example.Pod{}
	if created, err := client.Get(t.Context(), pods.Resource, pods.key("a"), got); created != at || err != nil || version(t, got) != newest {
		t.Errorf("Get() = %d, %v of version %d, want %d, of version %d", created, err, version(t, got), at, newest)
	}
}

// TestPrefixes: the keys in etcd are those of the generic store and registry,
// however the prefixes are written.
func TestPrefixes(t *testing.T) {
	etcd, client := start(t)
	tests := map[string]struct {
		prefix, resource string
		want             string
	}{
		"both with slash":        {"/registry", "/pods", "/registry/pods/ns/a"},
		"neither":                {"registry", "pods", "/registry/pods/ns/a"},
		"slash after the prefix": {"/registry/", "pods", "/registry/pods/ns/a"},
		"long prefix":            {"registry/sandlot.io", "/pods", "/registry/sandlot.io/pods/ns/a"},
		"long resource":          {"/registry", "agents.kruise.io/pods", "/registry/agents.kruise.io/pods/ns/a"},
		"no prefix":              {"/", "/pods", "/pods/ns/a"},
		"doubled slashes":        {"//registry//x", "pods", "/registry/x/pods/ns/a"},
		"slash after resource":   {"/registry", "pods/", "/registry/pods//ns/a"},
		"slashes in resource":    {"/registry", "//pods", "/registry//pods/ns/a"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pods := newKind(t, etcd, kindOptions{prefix: tc.prefix, resource: tc.resource})
			root := tc.resource
			if !strings.HasPrefix(root, "/") {
				root = "/" + root // as the generic registry does
			}
			want, err := genericregistry.NamespaceKeyFunc(genericapirequest.WithNamespace(t.Context(), "ns"), root, "a")
			if err != nil {
				t.Fatal(err)
			}
			if got := pods.key("a"); got != want {
				t.Errorf("Key() = %q, the generic registry's is %q", got, want)
			}
			at := pods.create(t, client, "a")
			got, err := pods.get(t, "a")
			if err != nil {
				t.Fatalf("the generic store reads: %v", err)
			}
			if version(t, got) != at {
				t.Errorf("version %d, want %d", version(t, got), at)
			}
			kv := raw(t, etcd.KV, tc.want)
			if kv == nil || kv.ModRevision != at {
				t.Errorf("etcd has %v under %q", kv, tc.want)
			}
			pods.remove(t, "a")
		})
	}
}

func TestInvalidKeys(t *testing.T) {
	etcd, client := start(t)
	pods := newKind(t, etcd, kindOptions{resource: "/pods"})
	tests := map[string]string{
		"empty":               "",
		"root":                "/",
		"of another resource": "/claims/ns/a",
		"without slash":       "pods/ns/a",
		"up":                  "/pods/../claims/ns/a",
		"up at the end":       "/pods/ns/..",
		"dot":                 "/pods/./a",
		"dot at the end":      "/pods/ns/.",
		"namespace of dots":   pods.Key("..", "a"),
		"name of dots":        pods.Key("ns", ".."),
	}
	unchanged(t, etcd.KV, func() {
		for name, key := range tests {
			t.Run(name, func(t *testing.T) {
				txn := client.Txn()
				if err := txn.Create(t.Context(), pods.Resource, key, pod("a")); err == nil {
					t.Error("Create() succeeds")
				}
				if err := txn.Update(t.Context(), pods.Resource, key, pod("a"), 1); err == nil {
					t.Error("Update() succeeds")
				}
				if txn.Len() != 0 || txn.Bytes() != 0 {
					t.Errorf("the transaction has %d objects, %d bytes", txn.Len(), txn.Bytes())
				}
			})
		}
	})
}
