// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registrytest runs storage tests against a real etcd in the process of
// the test. For tests only.
package registrytest

import (
	"context"
	"path"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	etcd3testing "k8s.io/apiserver/pkg/storage/etcd3/testing"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxset"
)

const (
	// Namespace is the namespace of Context.
	Namespace = "team-a"
	// UserName is the user of Context.
	UserName = "alice"
)

// Fixture is an etcd, and what it takes to build stores on it. It is a
// generic.RESTOptionsGetter for NewREST and NewStorage.
type Fixture struct {
	// Scheme and Codecs know what the server's know.
	Scheme *runtime.Scheme
	Codecs serializer.CodecFactory
	// Config leads to the etcd. Set its Transformer for encryption at rest.
	Config storagebackend.Config
	// Decorator wraps the storage. There is no watch cache unless one is put here,
	// so that a test that reads what it has just written needs no waiting.
	Decorator generic.StorageDecorator

	etcd *etcd3testing.EtcdTestServer
}

var _ generic.RESTOptionsGetter = &Fixture{}

// New starts an etcd that ends with the test.
func New(t testing.TB) *Fixture {
	t.Helper()
	scheme := NewScheme()
	codecs := serializer.NewCodecFactory(scheme)
	etcd, config := etcd3testing.NewUnsecuredEtcd3TestClientServer(t)
	config.Codec = codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)
	config.EncodeVersioner = v1alpha1.SchemeGroupVersion
	config.EventsHistoryWindow = storagebackend.DefaultEventsHistoryWindow
	return &Fixture{
		Scheme:    scheme,
		Codecs:    codecs,
		Config:    *config,
		Decorator: generic.UndecoratedStorage,
		etcd:      etcd,
	}
}

// NewScheme returns a scheme like the server's.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	sandboxset.AddScaleToScheme(scheme)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (f *Fixture) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig:           f.Config.ForResource(resource),
		Decorator:               f.Decorator,
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: 2,
		ResourcePrefix:          path.Join(resource.Group, resource.Resource),
	}, nil
}

// NewCached is New with a watch cache over each store, as in the server. Call
// WaitReady before reading.
func NewCached(t testing.TB) *Fixture {
	t.Helper()
	fixture := New(t)
	fixture.Decorator = genericregistry.StorageWithCacher()
	return fixture
}

// WaitReady waits until the watch cache of a store has read its first list.
func WaitReady(t testing.TB, store rest.StorageWithReadiness) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(context.Context) error { return store.ReadinessCheck() })
}

// Raw returns the bytes that etcd holds for an object in Namespace, or nil.
func (f *Fixture) Raw(t testing.TB, resource, name string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	key := path.Join("/", f.Config.Prefix, v1alpha1.GroupName, resource, Namespace, name)
	response, err := f.etcd.V3Client.KV.Get(ctx, key)
	if err != nil {
		t.Fatalf("reading %s: %v", key, err)
	}
	if len(response.Kvs) == 0 {
		return nil
	}
	return response.Kvs[0].Value
}

// Etcd is a client of the etcd, past every store.
func (f *Fixture) Etcd() *clientv3.Client { return f.etcd.V3Client.Client }

// Context is the context of a request for a resource in Namespace by UserName.
func Context(t testing.TB, resource string, subresource ...string) context.Context {
	info := &genericapirequest.RequestInfo{
		IsResourceRequest: true,
		APIGroup:          v1alpha1.GroupName,
		APIVersion:        v1alpha1.SchemeGroupVersion.Version,
		Namespace:         Namespace,
		Resource:          resource,
		Subresource:       path.Join(subresource...),
	}
	ctx := genericapirequest.WithRequestInfo(t.Context(), info)
	ctx = genericapirequest.WithNamespace(ctx, Namespace)
	return genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: UserName})
}
