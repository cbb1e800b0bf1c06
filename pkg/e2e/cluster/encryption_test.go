// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/install/encryptionkeys"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// store is a client of Sandlot's own etcd, as sandlot-apiserver is one.
func (c *clients) store(t *testing.T) *clientv3.Client {
	t.Helper()
	config, err := c.etcdClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{sandlot.EtcdURL()}, TLS: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// notEncryptedWith returns the keys of the values whose key of the store is another one.
func notEncryptedWith(ctx context.Context, etcd *clientv3.Client, key string) ([]string, error) {
	var others []string
	for _, prefix := range []string{"/sandlot/agents.kruise.io/", "/sandlot/sandlot-runtime-key"} {
		values, err := etcd.Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return nil, err
		}
		if len(values.Kvs) == 0 {
			return nil, fmt.Errorf("nothing is stored below %s", prefix)
		}
		for _, kv := range values.Kvs {
			if !strings.HasPrefix(string(kv.Value), "k8s:enc:secretbox:v1:"+key+":") {
				others = append(others, string(kv.Key))
			}
		}
	}
	return others, nil
}

// writeKey is the name of the key that the Secret lets API servers write with.
func writeKey(secret *corev1.Secret) string {
	_, rest, _ := strings.Cut(string(secret.Data[encryptionkeys.KeyConfig]), "name: ")
	name, _, _ := strings.Cut(rest, "\n")
	return name
}

// The store of an install is encrypted from the first object on, and the Secret with the key
// comes back when it is deleted.
func TestEncryption(t *testing.T) {
	c, ns, etcd := admin(t), namespace(t), admin(t).store(t)
	secrets := c.kube.CoreV1().Secrets(controlplane.Namespace)
	expect.FilledPool(t, c, ns, 30)
	c.claim(t, ns, builders.Claim("secret", 1))
	before, err := secrets.Get(t.Context(), encryptionkeys.Secret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := writeKey(before)
	if others, err := notEncryptedWith(t.Context(), etcd, first); err != nil || len(others) > 0 {
		t.Fatalf("%d values are not encrypted with %s: %q (%v)", len(others), first, others, err)
	}

	if err := secrets.Delete(t.Context(), encryptionkeys.Secret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		again, err := secrets.Get(ctx, encryptionkeys.Secret, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if diff := cmp.Diff(before.Data, again.Data); diff != "" {
			t.Fatal("the Secret has another key now")
		}
		return nil
	})
}

// The key is rotated as docs/encryption.md says, while clients claim: no call fails, and in
// the end nothing is left of the old key.
func TestEncryptionKeyRotates(t *testing.T) {
	expect.LongOnly(t)
	c, ns, etcd := admin(t), namespace(t), admin(t).store(t)
	secrets := c.kube.CoreV1().Secrets(controlplane.Namespace)
	expect.FilledPool(t, c, ns, 30)
	before, err := secrets.Get(t.Context(), encryptionkeys.Secret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := writeKey(before)
	load := c.startLoad(t, ns)
	load.goOn(t)
	request := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: "now"}}}`, encryptionkeys.AnnotationRotate)
	if _, err := secrets.Patch(t.Context(), encryptionkeys.Secret, types.MergePatchType, request, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	var second string
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		secret, err := secrets.Get(ctx, encryptionkeys.Secret, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if second = writeKey(secret); second == first {
			return fmt.Errorf("%s still writes", first)
		}
		return nil
	})
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		done, err := etcd.Get(ctx, "/sandlot/sandlot-encryption")
		if err != nil {
			return err
		}
		if len(done.Kvs) != 1 || string(done.Kvs[0].Value) != "secretbox:v1:"+second {
			return fmt.Errorf("written down is %v, want %s", done.Kvs, second)
		}
		return nil
	})
	load.goOn(t)
	load.stop(t)
	if others, err := notEncryptedWith(t.Context(), etcd, second); err != nil || len(others) > 0 {
		t.Errorf("%d values are not encrypted with %s: %q (%v)", len(others), second, others, err)
	}
}
