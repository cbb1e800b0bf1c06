// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// GroupOf is the group and version that a request is made in; those that objects are stored
// in for what the server does itself.
func GroupOf(ctx context.Context) schema.GroupVersion {
	if info, ok := genericapirequest.RequestInfoFrom(ctx); ok && info.APIGroup != "" {
		return schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	}
	return v1alpha1.SchemeGroupVersion
}

// subresourceOf is the subresource that a request names; empty for none.
func subresourceOf(ctx context.Context) string {
	if info, ok := genericapirequest.RequestInfoFrom(ctx); ok {
		return info.Subresource
	}
	return ""
}

// OfAgentSandbox reports whether a request is made in a group of agent-sandbox.
func OfAgentSandbox(ctx context.Context) bool {
	group := GroupOf(ctx).Group
	return group == v1alpha1.ExtensionsGroup || group == v1alpha1.AgentsGroup
}

// SetAPI notes on a new object in which API it is made.
func SetAPI(ctx context.Context, object metav1.Object) {
	api := ""
	if OfAgentSandbox(ctx) {
		api = v1alpha1.AgentsGroup
	}
	setAPI(object, api)
}

// KeepAPI keeps what is noted on a stored object. Which rules hold for an object depends on
// it, so whatever a client sends under that key is dropped.
func KeepAPI(updated, stored metav1.Object) {
	setAPI(updated, stored.GetAnnotations()[v1alpha1.AnnotationAPI])
}

func setAPI(object metav1.Object, api string) {
	annotations := object.GetAnnotations()
	if annotations[v1alpha1.AnnotationAPI] == api {
		if api == "" {
			delete(annotations, v1alpha1.AnnotationAPI)
		}
		return
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	if api == "" {
		delete(annotations, v1alpha1.AnnotationAPI)
	} else {
		annotations[v1alpha1.AnnotationAPI] = api
	}
	object.SetAnnotations(annotations)
}

// SetKind is what a SandboxSet is called in the group that a request is made in.
func SetKind(ctx context.Context) string {
	if OfAgentSandbox(ctx) {
		return "SandboxWarmPool"
	}
	return "SandboxSet"
}
