// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/agentsandbox"
)

// withoutPodTemplatesInTables sets WithoutPodTemplates on reads of sandboxes that are returned as a
// Table or as metadata, which have no pod templates.
func withoutPodTemplatesInTables(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if req.Method != http.MethodGet || !ok || info.APIGroup != v1alpha1.AgentsGroup || info.Resource != "sandboxes" {
			handler.ServeHTTP(w, req)
			return
		}
		if _, ok := conversionOf(req); ok {
			req = req.WithContext(agentsandbox.WithoutPodTemplates(req.Context()))
		}
		handler.ServeHTTP(w, req)
	})
}

// conversionOf returns the kind that a read is converted to by the generic handlers, if it is.
func conversionOf(req *http.Request) (kind string, ok bool) {
	as, ok := negotiation.NegotiateMediaTypeOptions(req.Header.Get("Accept"), Codecs.SupportedMediaTypes(), tableConversions{})
	if !ok || as.Convert == nil {
		return "", false
	}
	return as.Convert.Kind, true
}

// convertedPart reports which part of the objects of a list is in the response, if that is a Table or metadata.
func convertedPart(req *http.Request) (isWhole, ok bool) {
	kind, ok := conversionOf(req)
	include := metav1.IncludeObjectPolicy(req.URL.Query().Get("includeObject"))
	return kind == "Table" && include == metav1.IncludeObject, ok && (kind != "Table" || include != metav1.IncludeNone)
}

// tableConversions are the conversions that the generic handlers do.
type tableConversions struct{}

// AllowsMediaTypeTransform implements negotiation.EndpointRestrictions.
func (tableConversions) AllowsMediaTypeTransform(_, subtype string, target *schema.GroupVersionKind) bool {
	switch {
	case target == nil:
		return true
	case target.Group != metav1.GroupName || target.Version != "v1" && target.Version != "v1beta1":
		return false
	case target.Kind == "Table":
		return subtype == "json" || subtype == "yaml"
	}
	return target.Kind == "PartialObjectMetadata" || target.Kind == "PartialObjectMetadataList"
}

// AllowsServerVersion implements negotiation.EndpointRestrictions.
func (tableConversions) AllowsServerVersion(string) bool { return false }

// AllowsStreamSchema implements negotiation.EndpointRestrictions.
func (tableConversions) AllowsStreamSchema(schema string) bool { return schema == "watch" }
