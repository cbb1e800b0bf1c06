// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// TestReadLimits checks that a user whose lists or gets do not end is refused more, and that all else goes
// through: what others read, watches, and requests to sandboxes.
func TestReadLimits(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	type stands struct{}
	handler := withReadLimits(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if req.Context().Value(stands{}) != nil {
			began <- struct{}{}
			<-end
		}
	}))
	do := func(ctx context.Context, name, verb, subresource string) *httptest.ResponseRecorder {
		ctx = request.WithUser(ctx, &user.DefaultInfo{Name: name})
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
			IsResourceRequest: true, Verb: verb, APIGroup: v1alpha1.GroupName, APIVersion: "v1alpha1", Resource: "sandboxes", Subresource: subresource,
		})
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		return w
	}
	const eve = "system:serviceaccount:team:eve"
	var wait sync.WaitGroup
	for verb, n := range map[string]int{"list": maxListsOfUser, "get": maxGetsOfUser} {
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
		{eve, "get", "", http.StatusTooManyRequests},
		{eve, "get", "status", http.StatusTooManyRequests},
		{user.Anonymous, "get", "", http.StatusOK},                                     // as a probe
		{"system:serviceaccount:team:another", "list", "", http.StatusTooManyRequests}, // who can make one makes many
		{"system:serviceaccount:other:eve", "list", "", http.StatusOK},
		{"ann", "list", "", http.StatusOK},
		{"ann", "get", "", http.StatusOK},
		{eve, "watch", "", http.StatusOK},
		{eve, "get", "proxy", http.StatusOK},
	} {
		w := do(t.Context(), tc.name, tc.verb, tc.subresource)
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
// that another user gets one. Small ones take nothing, and what is released can be taken again.
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
	if _, err := of("eve", 4*listUnit); err != nil {
		t.Fatal(err)
	}
	refused, err := of("eve", 2*listUnit)
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("a third large list: %v", err)
	}
	refused.release()
	for account, bytes := range map[string]int{"eve": listUnit - 1, "ann": 4 * listUnit} {
		if _, err := of(account, bytes); err != nil {
			t.Errorf("%d bytes of %s: %v", bytes, account, err)
		}
	}
	first.release()
	if _, err := of("eve", 2*listUnit); err != nil {
		t.Errorf("after a release: %v", err)
	}
}

// TestConvertedPart: what a list has in memory as a whole follows from its media type and includeObject.
func TestConvertedPart(t *testing.T) {
	const table, metadata = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	for _, tc := range []struct {
		accept, include string
		isWhole, ok     bool
	}{
		{"application/json", "", false, false},
		{"", "Object", false, false},
		{table, "", false, true},
		{table, "Metadata", false, true},
		{table, "Object", true, true},
		{table, "None", false, false},
		{metadata, "", false, true},
		{metadata, "Object", false, true},
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?includeObject="+tc.include, nil)
		req.Header.Set("Accept", tc.accept)
		if isWhole, ok := convertedPart(req); isWhole != tc.isWhole || ok != tc.ok {
			t.Errorf("%s with includeObject=%s: %t %t", tc.accept, tc.include, isWhole, ok)
		}
	}
}
