// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// patchLibrary is in the stack of a panic at a JSON Patch.
const patchLibrary = "gopkg.in/evanphx/json-patch"

// patchTypes are the kinds of patches that our group takes.
var patchTypes = []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType)}

// PatchOptions are what patches are checked by.
type PatchOptions struct {
	Scheme *runtime.Scheme
	Codecs runtime.NegotiatedSerializer
	// Kinds are the kinds of resources and subresources, of all groups that are ours.
	Kinds Kinds
	// MaxBytes bounds a patch.
	MaxBytes int64
	// Exempt are the names of the users, our controllers, who may write larger objects: they copy the templates of users
	// into objects of their own.
	Exempt sets.Set[string]
}

// Kinds are the kinds of the resources that a server serves.
type Kinds map[schema.GroupVersion]map[string]schema.GroupVersionKind

// Add notes the kind of a resource, or of a subresource as resource/subresource.
func (k Kinds) Add(served schema.GroupVersion, resource string, kind schema.GroupVersionKind) {
	if k[served] == nil {
		k[served] = map[string]schema.GroupVersionKind{}
	}
	k[served][resource] = kind
}

// WithPatchRules adds to patches of our group what the generic handlers lack.
//
//  1. Strategic merge patches are refused, as they are for custom resources, in
//     whose place our kinds stand: pod templates are raw JSON here, so their
//     lists would silently be replaced and not merged. Clients know what to do
//     (kubectl apply takes a JSON merge patch). So is server-side apply of CBOR: see
//     NewSerializer.
//  2. Server-side apply is refused with 400 if the object or its templates do not decode, have
//     unknown fields, or have two list elements with the same key. The generic handlers would
//     answer 500, because they find that out by the schema alone.
//  3. kubectl patch, which sets no fieldValidation, gets strict validation. The user may mean
//     the kind of the same name in the other group, whose fields would be dropped here with no
//     more than a warning.
//  4. Patches of main resources and applies with too many keys and items of lists are refused. What
//     objects become by patches is when it is decoded, see NewSerializer, and so are creates and
//     updates (PUT): of these a long status, which the server does not take over, is emptied
//     before that. An update or patch that makes an object larger than maxElements is refused.
//  5. A JSON Patch at which the library of the generic handlers panics is refused with 400.
//
// It runs after authentication and authorization.
func WithPatchRules(handler http.Handler, o PatchOptions) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		isLong := uint64(req.ContentLength) > shortBody && ok && isWrite(info)
		if !ok || !info.IsResourceRequest || info.Verb != "patch" && info.Verb != "update" && !isLong || !isOurs(info.APIGroup) || info.Subresource == "proxy" {
			handler.ServeHTTP(w, req)
			return
		}
		o.serve(handler, w, strictForKubectlPatch(req), info, isLong)
	})
}

// serve handles a request that rules apply to. isLong is set for a create or an update with a long body.
func (o PatchOptions) serve(handler http.Handler, w http.ResponseWriter, req *http.Request, info *request.RequestInfo, isLong bool) {
	refuse := func(err error) {
		gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
		responsewriters.ErrorNegotiated(err, o.Codecs, gv, w, req)
	}
	writer, ok := request.UserFrom(req.Context())
	isExempt := ok && o.Exempt.Has(writer.GetName())
	if info.Verb == "patch" || isLong && !isExempt {
		if err := o.checkBody(req, info); err != nil {
			refuse(err)
			return
		}
	}
	if info.Verb != "create" {
		check := checkGrowth
		if isExempt {
			check = boundError
		}
		req = req.WithContext(base.WithCheckUpdate(req.Context(), check))
	}
	if info.Verb == "patch" {
		servePatch(handler, w, req, refuse)
	} else {
		handler.ServeHTTP(w, req)
	}
}

// checkBody checks the body of a patch, and of another write with a long body.
func (o PatchOptions) checkBody(req *http.Request, info *request.RequestInfo) error {
	mediaType, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	switch patch := types.PatchType(mediaType); {
	case info.Verb != "patch":
		return o.emptyStatus(req, mediaType, o.kindOf(info), info.Verb == "update")
	case err == nil && patch == types.JSONPatchType:
		_, err := o.read(req, info.Subresource == "")
		return err
	case err != nil, patch == types.StrategicMergePatchType, patch == types.ApplyCBORPatchType:
		// The generic handlers take what is before the semicolon, also where the rest is wrong.
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure,
			Code:   http.StatusUnsupportedMediaType,
			Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %s",
				strings.Join(patchTypes, ", ")),
		}}
	case patch == types.ApplyYAMLPatchType, patch == types.MergePatchType:
		applied := patch == types.ApplyYAMLPatchType
		return o.check(req, o.kindOf(info), applied, applied || info.Subresource == "")
	}
	return nil
}

// servePatch handles a patch. The library of the generic handlers panics at some JSON Patches, such as one that tests a
// list against null, or that has no value: these are refused. Other panics are not recovered.
func servePatch(handler http.Handler, w http.ResponseWriter, req *http.Request, refuse func(error)) {
	defer func() {
		panicked := recover()
		if panicked == nil {
			return
		}
		// The generic handlers panic again with a text that has the stack.
		text, ok := panicked.(string)
		if !ok || !strings.Contains(text, patchLibrary) {
			panic(panicked)
		}
		cause, _, _ := strings.Cut(text, "\n")
		klog.FromContext(req.Context()).Info("Refused JSON Patch at which the library panicked", "cause", cause)
		refuse(apierrors.NewBadRequest("the JSON Patch cannot be applied to the object"))
	}()
	handler.ServeHTTP(w, req)
}

// strictForKubectlPatch sets fieldValidation=Strict, the default of other commands of kubectl, on
// a request of kubectl patch that sets no fieldValidation. It returns other requests as they are.
func strictForKubectlPatch(req *http.Request) *http.Request {
	query := req.URL.Query()
	if query.Get("fieldManager") != "kubectl-patch" || query.Has("fieldValidation") {
		return req
	}
	query.Set("fieldValidation", metav1.FieldValidationStrict)
	strict := *req
	url := *req.URL
	url.RawQuery = query.Encode()
	strict.URL = &url
	return &strict
}

// isWrite reports whether a request creates or updates an object.
func isWrite(info *request.RequestInfo) bool {
	return (info.Verb == "create" || info.Verb == "update") && info.Subresource == ""
}

// kindOf returns the kind of what a request is for, if it is ours.
func (o PatchOptions) kindOf(info *request.RequestInfo) schema.GroupVersionKind {
	served := o.Kinds[schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}]
	return served[resourceKey(info.Resource, info.Subresource)]
}

// emptyStatus replaces the body of a request by one without status if it has too many elements.
// It returns an error for a create that has too many then, and for such a body that is YAML.
func (o PatchOptions) emptyStatus(req *http.Request, mediaType string, kind schema.GroupVersionKind, isUpdate bool) error {
	body, err := o.read(req, false)
	if err != nil {
		return err
	}
	n, err := o.elementsOf(body, mediaType, kind)
	if err == nil && n.checkBody() == nil {
		return nil
	}
	var emptied bool
	if err == nil {
		body, emptied, err = o.withoutStatus(body, mediaType, kind)
	}
	if err == nil && emptied {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		if isUpdate { // whatever is stored can be updated
			return nil
		}
		n, err = o.elementsOf(body, mediaType, kind)
	}
	if err == nil {
		err = n.checkBody()
	}
	if err != nil {
		return apierrors.NewBadRequest(bounded(err).Error())
	}
	return nil
}

// elementsOf counts the elements of the body of a request. It returns an error if that is protobuf with
// a value that is refused.
func (o PatchOptions) elementsOf(body []byte, mediaType string, kind schema.GroupVersionKind) (elements, error) {
	if mediaType == runtime.ContentTypeProtobuf {
		return checkProtobuf(o.Scheme, body, kind)
	}
	return elementsOf(body), nil
}

// withoutStatus returns the body of a request without its status. It reports false, and returns the
// body as it is, where it can not, as for YAML.
func (o PatchOptions) withoutStatus(body []byte, mediaType string, kind schema.GroupVersionKind) ([]byte, bool, error) {
	switch mediaType {
	case "", runtime.ContentTypeJSON:
		return withoutStatus(body), true, nil
	case runtime.ContentTypeProtobuf:
		obj, err := o.Scheme.New(kind)
		if err != nil {
			return nil, false, fmt.Errorf("removing the status: %w", err)
		}
		body, err := withoutProtobufStatus(body, reflect.TypeOf(obj).Elem())
		return body, true, err
	}
	return body, false, nil
}

// check reads the body of a patch, leaves it to be read again, and decodes it.
// A merge patch is a partial object too, with null for what is to be removed;
// the generic handlers deal with its unknown fields as the client wants.
func (o PatchOptions) check(req *http.Request, kind schema.GroupVersionKind, applied, counted bool) error {
	if kind.Empty() && !applied {
		return nil
	}
	body, err := o.read(req, counted)
	if err != nil || kind.Empty() {
		return err
	}
	err = checkValues(o.Scheme, body, kind)
	if err == nil {
		err = checkFields(o.Scheme, body, kind, !applied)
	}
	if err == nil && applied {
		err = checkApplied(o.Scheme, body, kind)
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", kind.Kind, kind.Version, kind.Kind, bounded(err)))
	}
	return nil
}

// read reads the body of a request, and leaves it to be read again. It returns an error if the body
// is counted and has too many elements.
func (o PatchOptions) read(req *http.Request, counted bool) ([]byte, error) {
	defer req.Body.Close()
	body, err := io.ReadAll(http.MaxBytesReader(nil, req.Body, o.MaxBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", o.MaxBytes))
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the body: %v", err))
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	if counted {
		if err := elementsOf(body).checkBody(); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	return body, nil
}

func resourceKey(resource, subresource string) string {
	if subresource == "" {
		return resource
	}
	return resource + "/" + subresource
}
