// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"math/rand"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	apitestingfuzzer "k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/sandlot-io/sandlot/apis/sandbox/fuzzer"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/apiserver/scheme"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

type apiObject interface {
	runtime.Object
	metav1.Object
}

// fillEveryField puts one of each kind straight into etcd, with a value in each field that
// there is. No API would take them.
func fillEveryField(t *testing.T, s *testutil.Server) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: s.EtcdServers, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	fill := apitestingfuzzer.FuzzerFor(apitestingfuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, fuzzer.Funcs), rand.NewSource(1), scheme.Codecs).
		NilChance(0).NumElements(1, 2)
	for _, kind := range []struct {
		resource string
		object   apiObject
	}{
		{"sandboxclaims", &v1alpha1.SandboxClaim{}},
		{"sandboxes", &v1alpha1.Sandbox{}},
		{"sandboxsets", &v1alpha1.SandboxSet{}},
		{"sandboxtemplates", &v1alpha1.SandboxTemplate{}},
	} {
		object := kind.object
		fill.Fill(object)
		object.SetNamespace(everyField)
		object.SetName("every-field")
		object.SetGenerateName("")
		object.SetUID(types.UID("uid-of-" + kind.resource))
		object.SetResourceVersion("")
		object.SetSelfLink("")
		object.SetManagedFields(nil)
		object.SetDeletionTimestamp(nil)
		object.SetDeletionGracePeriodSeconds(nil)
		if claim, ok := object.(*v1alpha1.SandboxClaim); ok {
			claim.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted // nothing is to be done for it
		}
		resource := etcdtxn.NewResource(&storagebackend.ConfigForResource{
			Config:        storagebackend.Config{Prefix: options.EtcdPrefix, Codec: apiserver.NewStorageCodec()},
			GroupResource: v1alpha1.Resource(kind.resource),
		}, v1alpha1.GroupName+"/"+kind.resource)
		txn := etcdtxn.NewClient(client).Txn()
		if err := txn.Create(t.Context(), resource, resource.Key(everyField, object.GetName()), object); err != nil {
			t.Fatal(err)
		}
		if err := txn.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
