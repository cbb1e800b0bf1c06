// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// maxSelectors is how many bytes the selectors of a request have together. The generic server
// parses them several times, first before it knows whose request it is, and compares them with
// each object of a list: with 400 KB that takes a millisecond for each object. Many proxies take
// no longer URLs.
const maxSelectors = 8 << 10

// withBoundedSelectors refuses a request with too long selectors. It has to be outside of all that
// parses them, which the generic handler chain begins with.
func withBoundedSelectors(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if len(req.URL.RawQuery) > maxSelectors {
			if err := checkSelectors(req); err != nil {
				responsewriters.ErrorNegotiated(err, Codecs, schema.GroupVersion{}, w, req)
				return
			}
		}
		handler.ServeHTTP(w, req)
	})
}

// checkSelectors returns a BadRequest if the selectors of a request are too long.
func checkSelectors(req *http.Request) error {
	size, query := 0, req.URL.Query()
	for _, name := range []string{"labelSelector", "fieldSelector"} {
		for _, selector := range query[name] {
			size += len(selector)
		}
	}
	if size <= maxSelectors {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf("labelSelector and fieldSelector have %d bytes, and may have %d together: select fewer objects by each request, or list all and filter them", size, maxSelectors))
}
