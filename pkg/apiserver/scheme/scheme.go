// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheme has the kinds that the API server serves, and what encodes and decodes them.
package scheme

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxset"
)

var (
	// Scheme knows the served kinds, also under the internal version that the
	// generic server uses as its hub. Controllers and clients must not use it: see
	// package install.
	Scheme = runtime.NewScheme()
	// Codecs encode and decode the kinds of Scheme. They encode lists one item at a time: in
	// agents.x-k8s.io each member of a pool has its whole pod template.
	Codecs = serializer.NewCodecFactory(Scheme,
		serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf())
)

func init() {
	install.Install(Scheme)
	sandboxset.AddScaleToScheme(Scheme)

	// The generic server decodes options and answers with these, in the version
	// of the core group.
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(Scheme, unversioned)
	Scheme.AddUnversionedTypes(unversioned,
		&metav1.Status{},
		&metav1.APIVersions{},
		&metav1.APIGroupList{},
		&metav1.APIGroup{},
		&metav1.APIResourceList{},
	)
}
