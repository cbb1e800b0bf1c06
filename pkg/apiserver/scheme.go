// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/decoding"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxset"
)

var (
	// scheme knows the served kinds, also under the internal version that the
	// generic server uses as its hub. Controllers and clients must not use it: see
	// package install.
	scheme = runtime.NewScheme()
	// Codecs encode and decode the kinds of scheme. They encode lists one item at a time: in
	// agents.x-k8s.io each member of a pool has its whole pod template.
	Codecs = serializer.NewCodecFactory(scheme,
		serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf())
)

// NewStorageCodec returns the codec of objects in etcd. They are encoded in JSON, in the
// version v1alpha1 of agents.kruise.io, and decoded from whatever the scheme knows. What could not
// be decoded is not encoded.
func NewStorageCodec() runtime.Codec {
	stored, err := decoding.NewStoredDecoder(Codecs.UniversalDeserializer(), scheme, v1alpha1.SchemeGroupVersion,
		&v1alpha1.Sandbox{}, &v1alpha1.SandboxClaim{}, &v1alpha1.SandboxSet{}, &v1alpha1.SandboxTemplate{})
	utilruntime.Must(err) // the scheme has these types
	encoder := decoding.NewStoredEncoder(Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion))
	return runtime.NewCodec(encoder, Codecs.DecoderToVersion(stored, runtime.InternalGroupVersioner))
}

func init() {
	install.Install(scheme)
	sandboxset.AddScaleToScheme(scheme)

	// The generic server decodes options and answers with these, in the version
	// of the core group.
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, unversioned)
	scheme.AddUnversionedTypes(unversioned,
		&metav1.Status{},
		&metav1.APIVersions{},
		&metav1.APIGroupList{},
		&metav1.APIGroup{},
		&metav1.APIResourceList{},
	)
}
