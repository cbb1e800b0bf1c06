// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// TestReadLimits checks that a user whose lists, gets or deletecollections do not end is refused more, and that all else
// goes through: what others read and delete, single deletions, watches, and requests to sandboxes.
func TestReadLimits(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	type stands struct{}
	handle := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if req.Context().Value(stands{}) != nil {
			began <- struct{}{}
			<-end
		}
	})
	reads, deletions := WithReadLimits(handle), WithDeletionLimits(handle)
	do := func(ctx context.Context, name, verb, subresource string) *httptest.ResponseRecorder {
		ctx = request.WithUser(ctx, &user.DefaultInfo{Name: name})
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
			IsResourceRequest: true, Verb: verb, APIGroup: v1alpha1.GroupName, APIVersion: "v1alpha1", Resource: "sandboxes", Subresource: subresource,
		})
		w, handler, method := httptest.NewRecorder(), reads, http.MethodGet
		if verb == "delete" || verb == "deletecollection" {
			handler, method = deletions, http.MethodDelete
		}
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, "/", nil))
		return w
	}
	const eve = "system:serviceaccount:team:eve"
	var wait sync.WaitGroup
	for verb, n := range map[string]int{"list": maxListsOfUser, "get": maxGetsOfUser, "deletecollection": maxDeletionsOfUser} {
		for range n {
			wait.Go(func() {
				if w := do(context.WithValue(t.Context(), stands{}, true), eve, verb, ""); w.Code != http.StatusOK {
					t.Errorf("%s within the limit: %d", verb, w.Code)
				}
			})
			<-began
		}
	}
	for _, tc := range []struct {
		name, verb, subresource string
		code                    int
	}{
		{eve, "list", "", http.StatusTooManyRequests},
		{eve, "deletecollection", "", http.StatusTooManyRequests},
		{eve, "get", "", http.StatusTooManyRequests},
		{eve, "get", "status", http.StatusTooManyRequests},
		{user.Anonymous, "get", "", http.StatusOK},                                     // as a probe
		{"system:serviceaccount:team:another", "list", "", http.StatusTooManyRequests}, // who can make one makes many
		{"system:serviceaccount:other:eve", "list", "", http.StatusOK},
		{"ann", "list", "", http.StatusOK},
		{"ann", "get", "", http.StatusOK},
		{"ann", "deletecollection", "", http.StatusOK},
		{eve, "delete", "", http.StatusOK},
		{eve, "watch", "", http.StatusOK},
		{eve, "get", "proxy", http.StatusOK},
	} {
		ctx, cancel := t.Context(), func() {}
		if tc.code == http.StatusTooManyRequests {
			ctx, cancel = context.WithTimeout(ctx, 20*time.Millisecond) // a deletion waits
		}
		w := do(ctx, tc.name, tc.verb, tc.subresource)
		cancel()
		if w.Code != tc.code || tc.code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
			t.Errorf("%+v: %d, Retry-After %q", tc, w.Code, w.Header().Get("Retry-After"))
		}
	}
	close(end)
	wait.Wait()
	if w := do(t.Context(), eve, "list", ""); w.Code != http.StatusOK {
		t.Errorf("after the others have ended: %d", w.Code)
	}
}

// TestListBudgets: the large lists of a user take at most half of the memory for them, however large they are, so
// that another user gets one. What is released can be taken again. Lists of whole objects have a largest size.
func TestListBudgets(t *testing.T) {
	budgets := &listBudgets{fairness.NewSlots(16, 8), 4}
	of := func(account string, bytes int) (*listBudget, error) {
		b := &listBudget{budgets: budgets, account: account}
		return b, b.reserve(bytes)
	}
	first, err := of("eve", 100*listUnit)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := of("eve", 3*listUnit+1); err != nil {
		t.Fatal(err)
	}
	refused, err := of("eve", 1)
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("a third list: %v", err)
	}
	refused.release()
	if _, err := of("ann", 4*listUnit); err != nil {
		t.Errorf("a list of another user: %v", err)
	}
	first.release()
	if _, err := of("eve", 2*listUnit); err != nil {
		t.Errorf("after a release: %v", err)
	}
	whole := &listBudget{budgets: budgets, account: "bob", isWhole: true}
	if err := whole.reserve(4*listUnit + 1); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("whole objects of more than the largest size: %v", err)
	}
}

// TestConvertedListsOfTheSystem: users cannot take what garbage collectors and quotas need.
func TestConvertedListsOfTheSystem(t *testing.T) {
	lists := newConvertedLists()
	for name, tc := range map[string]struct {
		groups   []string
		isSystem bool
	}{
		"eve":                            {[]string{"system:authenticated"}, false},
		"root":                           {[]string{"system:masters"}, true},
		"system:kube-controller-manager": {nil, true},
		"system:serviceaccount:team:eve": {[]string{"system:serviceaccounts", "system:serviceaccounts:team"}, false},
		"system:serviceaccount:kube-system:generic-garbage-collector": {[]string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}, true},
	} {
		if got := lists.of(&user.DefaultInfo{Name: name, Groups: tc.groups}) == lists.system; got != tc.isSystem {
			t.Errorf("%s is of the system: %t", name, got)
		}
	}
}

// TestConversions: a read is converted as the handlers of its group negotiate it, and no deletion of many objects is.
func TestConversions(t *testing.T) {
	const as = ";as=Table;v=v1;g=meta.k8s.io"
	for _, tc := range []struct {
		group, accept  string
		converted, may bool
	}{
		{v1alpha1.GroupName, "application/json", false, false},
		{v1alpha1.GroupName, "", false, false},
		{v1alpha1.GroupName, "application/json" + as + ",application/json", true, true},
		{v1alpha1.GroupName, "application/json" + as + ";sv=v1", true, true},
		{v1alpha1.GroupName, "application/vnd.kubernetes.protobuf,application/json" + as, false, true},
		{v1alpha1.AgentsGroup, "application/vnd.kubernetes.protobuf,application/json" + as, true, true},
		{v1alpha1.GroupName, "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", true, true},
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		req.Header.Set("Accept", tc.accept)
		if converted, may := isConverted(req, tc.group), mayBeConverted(req); converted != tc.converted || may != tc.may {
			t.Errorf("%s as %q: converted %t, may be %t", tc.group, tc.accept, converted, may)
		}
		req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{Verb: "deletecollection"}))
		WithDeletionLimits(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			if mayBeConverted(req) {
				t.Errorf("a deletion as %q is converted", tc.accept)
			}
		})).ServeHTTP(httptest.NewRecorder(), req)
	}
}
