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

// withConversions leaves the pod templates of members out of what becomes a Table or
// metadata: neither shows them, and a Table that includes its objects is encoded as a whole. Other
// requests are not looked at.
func withConversions(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if req.Method != http.MethodGet || !ok || info.APIGroup != v1alpha1.AgentsGroup || info.Resource != "sandboxes" {
			handler.ServeHTTP(w, req)
			return
		}
		as, ok := negotiation.NegotiateMediaTypeOptions(req.Header.Get("Accept"), Codecs.SupportedMediaTypes(), conversions{})
		if ok && as.Convert != nil {
			req = req.WithContext(agentsandbox.WithoutPodTemplates(req.Context()))
		}
		handler.ServeHTTP(w, req)
	})
}

// conversions are those that the generic handlers make.
type conversions struct{}

// AllowsMediaTypeTransform implements negotiation.EndpointRestrictions.
func (conversions) AllowsMediaTypeTransform(_, subtype string, target *schema.GroupVersionKind) bool {
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
func (conversions) AllowsServerVersion(string) bool { return false }

// AllowsStreamSchema implements negotiation.EndpointRestrictions.
func (conversions) AllowsStreamSchema(schema string) bool { return schema == "watch" }
