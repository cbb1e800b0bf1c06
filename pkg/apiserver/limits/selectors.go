// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/sandlot-io/sandlot/pkg/apiserver/scheme"
)

// maxSelectors is how many bytes the selectors of a request have together. The generic server
// parses them several times, first before it knows whose request it is, and compares them with
// each object of a list: with 400 KB that takes a millisecond for each object. Many proxies take
// no longer URLs. maxTerms is how many requirements and values there may be in them: 1,900 take 10 milliseconds
// to parse, and more to ask kube-apiserver whether a watch with them is allowed.
const maxSelectors, maxTerms = 8 << 10, 256

// WithBoundedSelectors refuses a request with too long selectors, or with too many requirements and values in them.
// It has to be outside of all that parses them, which the generic handler chain begins with.
func WithBoundedSelectors(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if len(req.URL.RawQuery) > maxTerms { // otherwise they are short
			if err := checkSelectors(req); err != nil {
				responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{}, w, req)
				return
			}
		}
		handler.ServeHTTP(w, req)
	})
}

// checkSelectors returns a BadRequest if the selectors of a request are too long, or have too many terms.
func checkSelectors(req *http.Request) error {
	size, terms, query := 0, 0, req.URL.Query()
	for _, name := range []string{"labelSelector", "fieldSelector"} {
		for _, selector := range query[name] {
			size += len(selector)
			terms += 1 + strings.Count(selector, ",")
		}
	}
	if size <= maxSelectors && terms <= maxTerms {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf("labelSelector and fieldSelector have %d bytes and %d requirements and values, and may have %d and %d together: select fewer objects by each request, or list all and filter them", size, terms, maxSelectors, maxTerms))
}
