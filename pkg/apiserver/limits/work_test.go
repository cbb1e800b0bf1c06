// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
)

// subresourceKey is the key of the subresource that serveAs serves.
type subresourceKey struct{}

// serveAs has a request of a user served by WithBodies.
func serveAs(ctx context.Context, limits *BodyLimits, name, method, target string, body io.Reader, handle http.HandlerFunc) *httptest.ResponseRecorder {
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: name})
	subresource, _ := ctx.Value(subresourceKey{}).(string)
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, APIGroup: v1alpha1.GroupName, APIVersion: "v1alpha1", Resource: "sandboxtemplates", Subresource: subresource,
	})
	w := httptest.NewRecorder()
	handler := withDeadlines(WithBodies(handle, limits, func(*http.Request, *request.RequestInfo) bool { return false }), time.Minute, clock.RealClock{})
	handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, target, body))
	return w
}

// TestSlotsOfWaitingClaims: a small apply that creates a claim has no slot while the claim waits for sandboxes.
func TestSlotsOfWaitingClaims(t *testing.T) {
	for name, tc := range map[string]struct {
		body       io.Reader
		work, held int
	}{
		"small":                 {strings.NewReader("{}"), 1, 0},
		"large":                 {bytes.NewReader(make([]byte, largeBody+1)), maxWork, 1},
		"of a length not known": {io.MultiReader(strings.NewReader("{}")), maxWork, 1},
	} {
		limits := NewBodyLimits(1<<20, nil)
		serveAs(t.Context(), limits, "ann", http.MethodPatch, "/", tc.body, func(_ http.ResponseWriter, req *http.Request) {
			if held, work := limits.large.Held(), limits.work.Held(); held != 1 || work != tc.work {
				t.Errorf("%s: %d slots, and %d of work, are held before the claim waits", name, held, work)
			}
			sandboxclaim.Waits(req.Context())
			if held, work := limits.large.Held(), limits.work.Held(); held != tc.held || work != 0 {
				t.Errorf("%s: %d slots, and %d of work, are held while the claim waits, want %d and 0", name, held, work, tc.held)
			}
			if err := updateOf(req, 1); err != nil || limits.work.Held() != 1 {
				t.Errorf("%s: a claim that exists after all: %v, %d slots of work", name, err, limits.work.Held())
			}
		})
		if held := limits.large.Held() + limits.work.Held(); held != 0 {
			t.Errorf("%s: %d slots are held afterwards", name, held)
		}
	}
}

// updateOf updates a stored object of so many bytes, as a handler does.
func updateOf(req *http.Request, bytes int) error {
	stored := &v1alpha1.SandboxClaim{}
	stored.Name = strings.Repeat("x", bytes)
	update := base.TrackFieldManagers(nil, rest.DefaultUpdatedObjectInfo(&v1alpha1.SandboxClaim{}), false, nil)
	_, err := update.UpdatedObject(req.Context(), stored)
	return err
}

// TestWork: requests take slots by the size of their body or of the object that they change, so that those of one user
// leave processor time to others.
func TestWork(t *testing.T) {
	const dryRun = "?fieldManager=eve&dry%52un=All"
	for name, tc := range map[string]struct {
		method, query, subresource string
		body, object               int
		want                       int
	}{
		"a small create":             {http.MethodPost, "?fieldManager=dryRun", "", smallBody, 1 << 20, 0},
		"a create":                   {http.MethodPost, "", "", largeBody, 0, maxWork},
		"a large create":             {http.MethodPost, "", "", largeBody + 1, 0, maxWork},
		"a small dry run":            {http.MethodPost, dryRun, "", 10, 0, 1},
		"a dry run":                  {http.MethodPost, dryRun, "", 2*workUnit + 1, 0, 3},
		"a release":                  {http.MethodPost, "", "release", 10, 0, 1},
		"an update":                  {http.MethodPut, "", "", 2*workUnit + 1, 0, 3},
		"an update of a huge object": {http.MethodPut, "", "", 10, 1 << 20, maxWork},
		"a patch":                    {http.MethodPatch, "", "", 10, 10, 1},
		"a larger patch":             {http.MethodPatch, "", "", workUnit + 1, 10, 2},
		"a patch of a large object":  {http.MethodPatch, "", "", 10, 3 * workUnit, 4}, // it has a few bytes more
		"a patch of a huge object":   {http.MethodPatch, "", "", 10, 1 << 20, maxWork},
		"a huge patch":               {http.MethodPatch, "", "", 1 << 20, 10, maxWork},
		"a deletion":                 {http.MethodDelete, dryRun, "", smallBody, 1 << 20, 0},
	} {
		limits, got := NewBodyLimits(2<<20, nil), -1
		body := bytes.NewReader(make([]byte, tc.body))
		ctx := context.WithValue(t.Context(), subresourceKey{}, tc.subresource)
		serveAs(ctx, limits, "ann", tc.method, "/"+tc.query, body, func(w http.ResponseWriter, req *http.Request) {
			if err := updateOf(req, tc.object); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			got = limits.work.Held()
			_, _ = io.WriteString(w, "{}") // the client may not read it
			if held := limits.work.Held(); held != 0 {
				t.Errorf("%s: %d slots are held while the response is written", name, held)
			}
		})
		if got != tc.want || limits.work.Held() != 0 {
			t.Errorf("%s has %d slots and then %d, want %d and 0", name, got, limits.work.Held(), tc.want)
		}
	}
}

// TestExemptUsers: our controllers need no slots of work.
func TestExemptUsers(t *testing.T) {
	limits := NewBodyLimits(1<<20, sets.New("controller"))
	serveAs(t.Context(), limits, "controller", http.MethodPatch, "/", strings.NewReader("{}"), func(_ http.ResponseWriter, req *http.Request) {
		if err := updateOf(req, 1<<20); err != nil || limits.work.Held() != 0 {
			t.Errorf("%v, %d slots", err, limits.work.Held())
		}
	})
}

// TestUpdateOfAnEndedRequest: an update that is still computed when its request has ended keeps its slots, and none begins
// later.
func TestUpdateOfAnEndedRequest(t *testing.T) {
	limits := NewBodyLimits(1<<20, nil)
	var end func()
	var later context.Context
	serveAs(t.Context(), limits, "ann", http.MethodPatch, "/", strings.NewReader("{}"), func(w http.ResponseWriter, req *http.Request) {
		var err error
		if end, err = base.BeginUpdate(req.Context(), &v1alpha1.SandboxClaim{}); err != nil {
			t.Error(err)
		}
		later = req.Context()
		w.WriteHeader(http.StatusGatewayTimeout)
		_, _ = io.WriteString(w, "timeout") // of a recorder
	})
	if memory, work := limits.large.Held(), limits.work.Held(); memory != 1 || work != 1 {
		t.Errorf("while the update is computed, %d and %d slots are held, want 1 and 1", memory, work)
	}
	if _, err := base.BeginUpdate(later, &v1alpha1.SandboxClaim{}); !errors.Is(err, errEnded) {
		t.Errorf("an update begins when the request has ended: %v", err)
	}
	end()
	if held := limits.large.Held() + limits.work.Held(); held != 0 {
		t.Errorf("%d slots are held in the end", held)
	}
}

// TestWorkOfAnObject: a patch of a large object is refused if the user has no slots left for it.
func TestWorkOfAnObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := NewBodyLimits(1<<20, nil)
		limits.work, limits.largeWait = fairness.NewSlots(2*maxWork, maxWork), time.Millisecond
		held, err := limits.work.Wait(t.Context(), "ann")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []error{errors.New("too many"), nil} {
			serveAs(t.Context(), limits, "ann", http.MethodPatch, "/", strings.NewReader("{}"), func(_ http.ResponseWriter, req *http.Request) {
				if err := updateOf(req, 1<<20); apierrors.IsTooManyRequests(err) != (want != nil) {
					t.Errorf("%v, want %v", err, want)
				}
			})
			held()
		}
	})
}

// TestLargeRequests: a user has at most half of the slots for patches and other requests that may be large. More wait, and
// are refused in the end. Small requests, and those of others, are not affected.
func TestLargeRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := NewBodyLimits(1<<20, nil)
		limits.large, limits.largeWait = fairness.NewSlots(4, 2), time.Millisecond
		limits.work = fairness.NewSlots(8*maxWork, 4*maxWork)
		began, end := make(chan struct{}), make(chan struct{})
		type stands struct{}
		do := func(ctx context.Context, name, method string, body io.Reader) *httptest.ResponseRecorder {
			return serveAs(ctx, limits, name, method, "/", body, func(_ http.ResponseWriter, req *http.Request) {
				if req.Context().Value(stands{}) != nil {
					began <- struct{}{}
					<-end
				}
			})
		}
		small, large := func() io.Reader { return strings.NewReader("{}") }, func() io.Reader { return bytes.NewReader(make([]byte, largeBody+1)) }
		var wait sync.WaitGroup
		for method, body := range map[string]io.Reader{http.MethodPatch: small(), http.MethodPost: large()} {
			wait.Go(func() {
				if w := do(context.WithValue(t.Context(), stands{}, true), "eve", method, body); w.Code != http.StatusOK {
					t.Errorf("%s within the limit: %d", method, w.Code)
				}
			})
			<-began
		}
		for _, tc := range []struct {
			name, method string
			body         io.Reader
			code         int
		}{
			{"eve", http.MethodPatch, small(), http.StatusTooManyRequests},
			{"eve", http.MethodPut, large(), http.StatusTooManyRequests},
			{"eve", http.MethodPost, io.MultiReader(small()), http.StatusTooManyRequests}, // of a length that is not known
			{"eve", http.MethodPost, small(), http.StatusOK},
			{"eve", http.MethodDelete, http.NoBody, http.StatusOK},
			{"ann", http.MethodPatch, small(), http.StatusOK},
		} {
			w := do(t.Context(), tc.name, tc.method, tc.body)
			if w.Code != tc.code || tc.code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
				t.Errorf("%s of %s: %d, want %d", tc.method, tc.name, w.Code, tc.code)
			}
		}
		close(end)
		wait.Wait()
		if w := do(t.Context(), "eve", http.MethodPatch, small()); w.Code != http.StatusOK {
			t.Errorf("after the others have ended: %d", w.Code)
		}
	})
}
