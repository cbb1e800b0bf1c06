// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// TestPlacesOfNamespaces: neither a user nor a namespace, with any number of users,
// shuts others out.
func TestPlacesOfNamespaces(t *testing.T) {
	r := NewProxyREST(nil, nil)
	taken := map[string]int{}
	for i := range 10 * maxProxied {
		user := fmt.Sprintf("user-%d", i%10)
		if _, err := r.enter(user, "crowded"); err == nil {
			taken[user]++
		}
	}
	all := 0
	for user, n := range taken {
		if all += n; n > maxProxiedOfUser {
			t.Errorf("%s has %d places", user, n)
		}
	}
	if all > maxProxied/2 || all < maxProxied/4 {
		t.Errorf("the users of one namespace have %d places", all)
	}
	for range maxProxied / 5 {
		leave, err := r.enter("other", "calm")
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
	}
	if _, err := r.enter("other", "calm"); err == nil {
		t.Errorf("a user has more than %d places", maxProxiedOfUser)
	}
}

// answers are the errors that a request was answered with.
type answers []error

// Object implements rest.Responder.
func (*answers) Object(int, runtime.Object) {}

// Error implements rest.Responder.
func (a *answers) Error(err error) { *a = append(*a, err) }

// TestPlacesComeBeforeReads: a request beyond the places of its user is refused before the sandbox, which
// may be large, is read. Here there is nothing to read from.
func TestPlacesComeBeforeReads(t *testing.T) {
	r := NewProxyREST(nil, nil)
	for range maxProxiedOfUser {
		leave, err := r.enter("eve", "team")
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
	}
	ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "eve"})
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		APIPrefix: "apis", APIGroup: "g", APIVersion: "v1", Namespace: "team", Resource: "sandboxes", Name: "box", Subresource: "proxy",
	})
	var answered answers
	handler, err := r.Connect(ctx, "box", nil, &answered)
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis/g/v1/namespaces/team/sandboxes/box/proxy/80/", nil)
	handler.ServeHTTP(httptest.NewRecorder(), req)
	if len(answered) != 1 || !apierrors.IsTooManyRequests(answered[0]) {
		t.Errorf("answered with %v", answered)
	}
}
