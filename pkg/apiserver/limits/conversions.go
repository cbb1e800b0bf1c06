// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/scheme"
	"github.com/sandlot-io/sandlot/registry/agentsandbox"
)

// WithoutPodTemplatesInTables sets WithoutPodTemplates on reads of sandboxes that are returned as a
// Table or as metadata, which have no pod templates.
func WithoutPodTemplatesInTables(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if req.Method != http.MethodGet || !ok || info.APIGroup != v1alpha1.AgentsGroup || info.Resource != "sandboxes" {
			handler.ServeHTTP(w, req)
			return
		}
		if isConverted(req, info.APIGroup) {
			req = req.WithContext(agentsandbox.WithoutPodTemplates(req.Context()))
		}
		handler.ServeHTTP(w, req)
	})
}

// isConverted reports whether a read of objects of a group is converted by the generic handlers: to a Table or to
// metadata.
func isConverted(req *http.Request, group string) bool {
	types := scheme.Codecs.SupportedMediaTypes()
	if group != v1alpha1.GroupName { // the kinds of agent-sandbox have no protobuf
		types = slices.DeleteFunc(slices.Clone(types), func(info runtime.SerializerInfo) bool { return !info.EncodesAsText })
	}
	as, ok := negotiation.NegotiateMediaTypeOptions(req.Header.Get("Accept"), types, tableConversions{})
	return ok && as.Convert != nil
}

// mayBeConverted reports whether a request may have asked for a conversion, whatever its server then negotiates.
func mayBeConverted(req *http.Request) bool {
	return strings.Contains(strings.ToLower(req.Header.Get("Accept")), "as=")
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
func (tableConversions) AllowsServerVersion(version string) bool { return version == "v1" }

// AllowsStreamSchema implements negotiation.EndpointRestrictions.
func (tableConversions) AllowsStreamSchema(schema string) bool { return schema == "watch" }
