// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bytes"
	"crypto/aes"
	"path"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

const encryptedPrefix = "k8s:enc:aesgcm:v1:test:"

func newTransformer(t *testing.T) value.Transformer {
	t.Helper()
	block, err := aes.NewCipher(bytes.Repeat([]byte("k"), 32))
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := aestransformer.NewGCMTransformer(block)
	if err != nil {
		t.Fatal(err)
	}
	return value.NewPrefixTransformers(nil, value.PrefixTransformer{Prefix: []byte(encryptedPrefix), Transformer: gcm})
}

// What the transaction of a claim writes is, byte for byte, what the generic
// store writes for the same objects: else the first update that changes nothing
// would write all of them again.
func TestBytesOfAClaim(t *testing.T) {
	tests := map[string]value.Transformer{"plain": nil, "encrypted": newTransformer(t)}
	for name, transformer := range tests {
		t.Run(name, func(t *testing.T) {
			s := newClaimStorage(t, func(f *registrytest.Fixture) { f.Config.Transformer = transformer })
			set := registrytest.NewSandboxSet("pool")
			set.Spec.Template.Raw = []byte(`{"spec": {"unknown": 9007199254740993, "containers": [{"name":"main","image":"busybox:1","args":["<&>","ü","\u2028"]}]},` +
				` "metadata": {"annotations": {"z": "1", "a": "<"}}}`)
			s.stockSet(t, set, 2)
			claim := claimFailing("mine", 3) // of which one has to be made
			claim.Spec.OnShortage, claim.Spec.CreateOnNoStock = v1alpha1.ShortageWait, new(true)
			claim.Spec.ClaimTimeout, claim.Spec.WaitReadyTimeout = &metav1.Duration{Duration: time.Hour}, &metav1.Duration{Duration: time.Hour}
			claim.Spec.Labels = map[string]string{"run": "7"}
			claim.Spec.Annotations = map[string]string{"note": "<&> ü"}
			claim.Spec.ShutdownTime = new(metav1.NewTime(time.Now().Add(time.Hour)))
			claim.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
			claim.Labels, claim.Finalizers = map[string]string{"b": "2", "a": "1"}, []string{"example.com/hold"}
			s.create(t, claim)

			written := map[string][]string{"sandboxclaims": {"mine"}}
			for sandbox := range s.bound(t) {
				written["sandboxes"] = append(written["sandboxes"], sandbox)
			}
			if len(written["sandboxes"]) != 3 {
				t.Fatalf("the transaction wrote %v", written)
			}
			stores := map[string]*genericregistry.Store{"sandboxclaims": s.claims.Store, "sandboxes": s.sandboxes.Store}
			for resource, names := range written {
				for _, name := range names {
					s.sameBytes(t, stores[resource], resource, name)
					s.nothingToWrite(t, stores[resource], resource, name)
				}
			}
		})
	}
}

// sameBytes writes an object anew by the generic store, elsewhere.
func (s *claimStorage) sameBytes(t *testing.T, store *genericregistry.Store, resource, name string) {
	t.Helper()
	ctx := registrytest.Context(t, resource)
	obj, err := store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := *s.fixture
	elsewhere.Config.Prefix = "/elsewhere"
	options, err := elsewhere.GetRESTOptions(v1alpha1.Resource(resource), nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, destroy, err := generic.NewRawStorage(options.StorageConfig, store.NewFunc, store.NewListFunc, "/"+options.ResourcePrefix)
	if err != nil {
		t.Fatal(err)
	}
	defer destroy()
	copied := obj.DeepCopyObject()
	if err := raw.Versioner().PrepareObjectForStorage(copied); err != nil {
		t.Fatal(err)
	}
	key, err := store.KeyFunc(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Create(t.Context(), key, copied, nil, 0); err != nil {
		t.Fatal(err)
	}

	ours, secret := s.stored(t, s.fixture.Config.Prefix, resource, name)
	theirs, _ := s.stored(t, elsewhere.Config.Prefix, resource, name)
	if diff := cmp.Diff(string(theirs), string(ours)); diff != "" {
		t.Errorf("%s %s (-generic store +transaction):\n%s", resource, name, diff)
	}
	if secret != (s.fixture.Config.Transformer != nil) {
		t.Errorf("%s %s: encrypted is %t", resource, name, secret)
	}
}

// stored is what etcd holds, in plain text.
func (s *claimStorage) stored(t *testing.T, prefix, resource, name string) (plain []byte, secret bool) {
	t.Helper()
	key := path.Join("/", prefix, v1alpha1.GroupName, resource, registrytest.Namespace, name)
	resp, err := s.fixture.Etcd().Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) != 1 {
		t.Fatalf("etcd has nothing under %s", key)
	}
	data := resp.Kvs[0].Value
	if !bytes.HasPrefix(data, []byte(encryptedPrefix)) {
		return data, false
	}
	plain, stale, err := s.fixture.Config.Transformer.TransformFromStorage(t.Context(), data, value.DefaultContext(key))
	if err != nil || stale {
		t.Errorf("decrypting %s: stale is %t, %v", key, stale, err)
	}
	return plain, true
}

// nothingToWrite updates an object to what it is.
func (s *claimStorage) nothingToWrite(t *testing.T, store *genericregistry.Store, resource, name string) {
	t.Helper()
	ctx := registrytest.Context(t, resource)
	key, err := store.KeyFunc(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	for way, update := range map[string]func() error{
		"storage": func() error {
			same := func(obj runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
				return obj, nil, nil
			}
			return store.Storage.Storage.GuaranteedUpdate(ctx, key, store.NewFunc(), false, nil, same, nil)
		},
		"PUT": func() error {
			obj, err := store.Get(ctx, name, &metav1.GetOptions{})
			if err != nil {
				return err
			}
			_, _, err = store.Update(ctx, name, rest.DefaultUpdatedObjectInfo(obj),
				rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
			return err
		},
		"status": func() error {
			obj, err := store.Get(ctx, name, &metav1.GetOptions{})
			if err != nil || resource != "sandboxclaims" {
				return err
			}
			_, _, err = s.status.Update(ctx, name, rest.DefaultUpdatedObjectInfo(obj),
				rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
			return err
		},
	} {
		s.unwritten(t, func() {
			if err := update(); err != nil {
				t.Errorf("%s %s by %s: %v", resource, name, way, err)
			}
		})
	}
}
