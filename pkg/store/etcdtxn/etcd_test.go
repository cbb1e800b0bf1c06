// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtxn_test

import (
	"context"
	"crypto/aes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

var (
	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme)

	jsonCodec     = codecs.LegacyCodec(examplev1.SchemeGroupVersion)
	protobufCodec = codecs.CodecForVersions(protobuf.NewSerializer(scheme, scheme), codecs.UniversalDeserializer(),
		examplev1.SchemeGroupVersion, runtime.InternalGroupVersioner)
)

func init() {
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
}

// encrypted returns an AES-GCM transformer. Transformers of the same secret
// read one another's data.
func encrypted(t testing.TB, secret byte) value.Transformer {
	t.Helper()
	block, err := aes.NewCipher([]byte(strings.Repeat(string(rune('a'+secret)), 32)))
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := aestransformer.NewGCMTransformer(block)
	if err != nil {
		t.Fatal(err)
	}
	return value.NewPrefixTransformers(nil, value.PrefixTransformer{
		Prefix: fmt.Appendf(nil, "k8s:enc:aesgcm:v1:key%d:", secret), Transformer: gcm,
	})
}

// kind is a resource as the generic store and as etcdtxn see it, made from the
// same configuration.
type kind struct {
	*etcdtxn.Resource
	store storage.Interface
}

type kindOptions struct {
	prefix      string // default /registry
	resource    string
	codec       runtime.Codec // default JSON
	transformer value.Transformer
}

func newKind(t testing.TB, etcd *kubernetes.Client, o kindOptions) kind {
	t.Helper()
	if o.prefix == "" {
		o.prefix = "/registry"
	}
	if o.codec == nil {
		o.codec = jsonCodec
	}
	config := &storagebackend.ConfigForResource{
		Config:        storagebackend.Config{Prefix: o.prefix, Codec: o.codec, Transformer: o.transformer},
		GroupResource: schema.GroupResource{Resource: strings.Trim(o.resource, "/")},
	}
	resource := etcdtxn.NewResource(config, o.resource)

	// From here on as the storage factory and the generic registry do it.
	if o.transformer == nil {
		o.transformer = identity.NewEncryptCheckTransformer()
	}
	if !strings.HasPrefix(o.resource, "/") {
		o.resource = "/" + o.resource
	}
	versioner := storage.APIObjectVersioner{}
	store, err := etcd3.New(etcd, nil, o.codec,
		func() runtime.Object { return &example.Pod{} }, func() runtime.Object { return &example.PodList{} },
		o.prefix, o.resource, config.GroupResource, o.transformer, etcd3.NewDefaultLeaseManagerConfig(),
		etcd3.NewDefaultDecoder(o.codec, versioner), versioner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return kind{resource, store}
}

// key of the object called name in the namespace ns.
func (k kind) key(name string) string { return k.Key("ns", name) }

// get reads through the generic store.
func (k kind) get(t *testing.T, name string) (*example.Pod, error) {
	t.Helper()
	out := &example.Pod{}
	return out, k.store.Get(t.Context(), k.key(name), storage.GetOptions{}, out)
}

// update writes through the generic store.
func (k kind) update(t *testing.T, name string, change func(*example.Pod)) *example.Pod {
	t.Helper()
	out := &example.Pod{}
	err := k.store.GuaranteedUpdate(t.Context(), k.key(name), out, false, nil,
		func(obj runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
			pod := obj.(*example.Pod)
			change(pod)
			return pod, nil, nil
		}, nil)
	if err != nil {
		t.Fatalf("updating %s through the generic store: %v", name, err)
	}
	return out
}

// remove deletes through the generic store.
func (k kind) remove(t *testing.T, name string) {
	t.Helper()
	err := k.store.Delete(t.Context(), k.key(name), &example.Pod{}, nil,
		func(context.Context, runtime.Object) error { return nil }, nil, storage.DeleteOptions{})
	if err != nil {
		t.Fatalf("deleting %s through the generic store: %v", name, err)
	}
}

// create writes objects in one transaction and returns its revision.
func (k kind) create(t *testing.T, client *etcdtxn.Client, names ...string) int64 {
	t.Helper()
	txn := client.Txn()
	pods := make([]*example.Pod, 0, len(names))
	for _, name := range names {
		pods = append(pods, pod(name))
		mustAdd(t, txn.Create(t.Context(), k.Resource, k.key(name), pods[len(pods)-1]))
	}
	if err := txn.Commit(t.Context()); err != nil {
		t.Fatalf("creating %v: %v", names, err)
	}
	return version(t, pods[0])
}

func mustAdd(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("adding to the transaction: %v", err)
	}
}

// pod is an object with something of everything in its metadata.
func pod(name string, change ...func(*example.Pod)) *example.Pod {
	p := &example.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: "11d5-uid", Generation: 3,
			CreationTimestamp: metav1.Unix(1_770_000_000, 0),
			Labels:            map[string]string{"b": "2", "a": "1"},
			Annotations:       map[string]string{"note": "<&> ü"},
			OwnerReferences:   []metav1.OwnerReference{{APIVersion: "v1", Kind: "Owner", Name: "o", UID: "o-uid", Controller: new(true)}},
			ManagedFields:     []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Update", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}},
		},
		Spec:   example.PodSpec{RestartPolicy: "Always", TerminationGracePeriodSeconds: new(int64(30)), SchedulerName: "default"},
		Status: example.PodStatus{Phase: "Running", PodIP: "10.0.0.1"},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func sized(bytes int) func(*example.Pod) {
	return func(p *example.Pod) { p.Annotations = map[string]string{"payload": strings.Repeat("x", bytes)} }
}

// version is the revision that an object says it has.
func version(t testing.TB, obj runtime.Object) int64 {
	t.Helper()
	v, err := storage.APIObjectVersioner{}.ObjectResourceVersion(obj)
	if err != nil {
		t.Fatal(err)
	}
	return int64(v)
}

// revision is etcd's own, which grows with everything that is written.
func revision(t testing.TB, kv clientv3.KV) int64 {
	t.Helper()
	resp, err := kv.Get(t.Context(), "no-such-key")
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// raw is what etcd holds under a key; nil if nothing.
func raw(t testing.TB, kv clientv3.KV, key string) *mvccpb.KeyValue {
	t.Helper()
	resp, err := kv.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return nil
	}
	return resp.Kvs[0]
}

// unchanged fails if anything was written while do ran.
func unchanged(t *testing.T, kv clientv3.KV, do func()) {
	t.Helper()
	before := revision(t, kv)
	do()
	if after := revision(t, kv); after != before {
		t.Errorf("something was written: etcd went from revision %d to %d", before, after)
	}
}

func start(t *testing.T) (*kubernetes.Client, *etcdtxn.Client) {
	t.Helper()
	etcd := testserver.RunEtcd(t, nil)
	closeAtEnd(t, etcd)
	return etcd, etcdtxn.NewClient(etcd.KV)
}

// plainConfig is the configuration of a resource in JSON, without encryption.
func plainConfig() *storagebackend.ConfigForResource {
	return &storagebackend.ConfigForResource{Config: storagebackend.Config{Prefix: "/registry", Codec: jsonCodec}}
}

// closeAtEnd closes a client when the test ends, before its server stops. What
// it has to say to that is of no interest.
func closeAtEnd(t testing.TB, etcd io.Closer) { t.Cleanup(func() { _ = etcd.Close() }) }

// patience ends a test that would otherwise wait for ever.
const patience = time.Minute
