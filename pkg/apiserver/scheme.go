// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

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
	// Codecs encode and decode the kinds of Scheme.
	Codecs = serializer.NewCodecFactory(Scheme)
	// ParameterCodec decodes query parameters into options.
	ParameterCodec = metav1.ParameterCodec
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
