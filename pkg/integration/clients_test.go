// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// request is one HTTP request of a client: what it is, which of its kind, counted from 1,
// and how to send it.
type request struct {
	*http.Request
	n    int64
	send func() (*http.Response, error)
}

// fault is what becomes of a request on its way.
type fault func(request) (*http.Response, error)

// wire carries the requests of a client, with faults.
type wire struct {
	http.RoundTripper
	create, watch     fault
	creates, watches  atomic.Int64
	firstWatchStarted chan struct{}
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	its := request{Request: r, send: func() (*http.Response, error) { return w.RoundTripper.RoundTrip(r) }}
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/sandboxclaims"):
		if its.n = w.creates.Add(1); w.create != nil {
			return w.create(its)
		}
	case r.URL.Query().Get("watch") != "":
		if its.n = w.watches.Add(1); its.n == 1 {
			close(w.firstWatchStarted)
		}
		if w.watch != nil {
			return w.watch(its)
		}
	}
	return its.send()
}

// clientOver returns a client of pkg/client whose requests go over a wire.
func clientOver(t *testing.T, s *testutil.Server, w *wire) typed.AgentsV1alpha1Interface {
	t.Helper()
	w.firstWatchStarted = make(chan struct{})
	config := rest.CopyConfig(s.Config)
	config.QPS = 0
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		w.RoundTripper = next
		return w
	})
	clients, err := client.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clients.AgentsV1alpha1()
}

// answer is an answer that the server did not give.
func answer(r *http.Request, code int, header, body string) *http.Response {
	resp := &http.Response{
		StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader(body)),
	}
	if key, value, ok := strings.Cut(header, ": "); ok {
		resp.Header.Set(key, value)
	}
	return resp
}

// lost sends the request, and loses the answer.
func lost(r request) (*http.Response, error) {
	resp, err := r.send()
	if err == nil {
		err = errors.Join(resp.Body.Close(), io.ErrUnexpectedEOF)
	}
	return nil, err
}

// answered sends the request and replaces the answer.
func answered(code int) fault {
	return func(r request) (*http.Response, error) {
		if _, err := lost(r); !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		return answer(r.Request, code, "", "upstream error"), nil
	}
}

// refused does not send the request.
func refused(code int, header string) fault {
	return func(r request) (*http.Response, error) { return answer(r.Request, code, header, "not now"), nil }
}

// first applies faults to the first requests, and none to the others.
func first(faults ...fault) fault {
	return func(r request) (*http.Response, error) {
		if r.n > int64(len(faults)) {
			return r.send()
		}
		return faults[r.n-1](r)
	}
}

// checkOnlyClaim makes sure that there is one claim, with n sandboxes.
func checkOnlyClaim(t *testing.T, s *testutil.Server, claim *v1alpha1.SandboxClaim, n int) {
	t.Helper()
	list, err := claims(s).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].UID != claim.UID {
		t.Errorf("there are %d claims, want that one", len(list.Items))
	}
	if got := len(owned(t, s, claim)); got != n || len(claim.Status.Sandboxes) != n {
		t.Errorf("the claim lists %d sandboxes, and %d are its own; want %d", len(claim.Status.Sandboxes), got, n)
	}
	checkInvariants(t, s)
}

// Whatever becomes of the answers, there is one claim in the end, with what it asked for.
func TestClaimAndWaitBindsOnce(t *testing.T) {
	for name, create := range map[string]fault{
		"no fault":                    first(),
		"an answer is lost":           first(lost),
		"three answers are lost":      first(lost, lost, lost),
		"504 after it was done":       first(answered(http.StatusGatewayTimeout)),
		"500 and 502 after it":        first(answered(http.StatusInternalServerError), answered(http.StatusBadGateway)),
		"503 with Retry-After before": first(refused(http.StatusServiceUnavailable, "Retry-After: 1")),
		"overloaded, and then lost":   first(refused(http.StatusTooManyRequests, "Retry-After: 1"), lost),
		"it does not get through": first(func(request) (*http.Response, error) {
			return nil, errors.New("connection refused")
		}),
	} {
		t.Run(name, func(t *testing.T) {
			s, set := stocked(t, 2)
			knows(t, s, set, 2)
			w := &wire{create: create}
			agents := clientOver(t, s, w)
			wanted := testutil.Claim(set, "", 2, fails)
			wanted.GenerateName = "run-"
			claim, err := client.ClaimAndWait(t.Context(), agents, wanted, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(claim.Name, "run-") || wanted.Name != "" {
				t.Errorf("the claim is named %q, and what was handed in %q", claim.Name, wanted.Name)
			}
			checkOnlyClaim(t, s, claim, 2)
		})
	}
}

// A shortage is reported at once: client-go would send the claim ten times.
func TestClaimAndWaitTellsAShortage(t *testing.T) {
	s, set := stocked(t, 1)
	w := &wire{}
	_, err := client.ClaimAndWait(t.Context(), clientOver(t, s, w), testutil.Claim(set, "short", 2, fails), client.Options{})
	if !client.IsShortage(err) || client.IsTooManyWaiting(err) {
		t.Errorf("got %v, want a shortage", err)
	}
	if n := w.creates.Load(); n != 1 {
		t.Errorf("the claim was sent %d times, want once", n)
	}

	w = &wire{create: func(r request) (*http.Response, error) {
		resp, err := r.send()
		if r.n == 1 {
			s.Stock(t, set, 1, 1)
		}
		return resp, err
	}}
	claim, err := client.ClaimAndWait(t.Context(), clientOver(t, s, w), testutil.Claim(set, "patient", 2, fails), client.Options{RetryShortage: true})
	if err != nil || w.creates.Load() < 2 {
		t.Fatalf("sent %d times: %v", w.creates.Load(), err)
	}
	checkOnlyClaim(t, s, claim, 2)
}

// A claim of the name that others have made is not taken for the one that was asked for;
// one of the same key is.
func TestClaimAndWaitKnowsItsOwn(t *testing.T) {
	s, set := stocked(t, 3)
	theirs := create(t, s, testutil.Claim(set, "run-1", 1, nil))
	for _, w := range []*wire{{}, {create: first(lost)}} {
		_, err := client.ClaimAndWait(t.Context(), clientOver(t, s, w), testutil.Claim(set, "run-1", 1, nil), client.Options{})
		if !apierrors.IsAlreadyExists(err) || !strings.Contains(err.Error(), client.AnnotationKey) {
			t.Errorf("got %v, want to hear that there is another claim", err)
		}
	}
	checkOnlyClaim(t, s, theirs, 1)
	if err := client.GiveBack(t.Context(), s.Client.AgentsV1alpha1(), theirs); err != nil {
		t.Fatal(err)
	}

	agents, key := clientOver(t, s, &wire{}), client.Options{Key: "job-7"}
	mine, err := client.ClaimAndWait(t.Context(), agents, testutil.Claim(set, "run-2", 2, nil), key)
	if err != nil {
		t.Fatal(err)
	}
	again, err := client.ClaimAndWait(t.Context(), agents, testutil.Claim(set, "run-2", 2, nil), key)
	if err != nil || again.UID != mine.UID {
		t.Errorf("another call with the same key: %v, want the same claim", err)
	}
	if _, err := client.ClaimAndWait(t.Context(), agents, testutil.Claim(set, "run-2", 1, nil), key); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the same key for another number of sandboxes: %v", err)
	}
	fresh := testutil.Claim(set, "run-2", 2, func(c *v1alpha1.SandboxClaim) { c.Spec.WarmPool = v1alpha1.WarmPoolNone })
	if _, err := client.ClaimAndWait(t.Context(), agents, fresh, key); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the same key for other sandboxes: %v", err)
	}
	for user, taken := range map[string]bool{mine.Annotations[v1alpha1.AnnotationClaimedBy]: true, "eve": false} {
		key.User = user
		if _, err := client.ClaimAndWait(t.Context(), agents, testutil.Claim(set, "run-2", 2, nil), key); (err == nil) != taken {
			t.Errorf("the same key, made by %q: %v", user, err)
		}
	}
	checkOnlyClaim(t, s, mine, 2)
}

func TestClaimAndWaitWatches(t *testing.T) {
	s, set := stocked(t, 1, withSyncWindow(time.Millisecond))
	knows(t, s, set, 1)
	cut := func(r request) (*http.Response, error) { return answer(r.Request, http.StatusOK, "", ""), nil }
	expired := func(r request) (*http.Response, error) {
		return answer(r.Request, http.StatusOK, "Content-Type: application/json",
			`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`), nil
	}
	w := &wire{create: first(lost), watch: func(r request) (*http.Response, error) {
		if r.n == 3 {
			s.Stock(t, set, 1, 2)
		}
		return first(cut, expired, refused(http.StatusServiceUnavailable, ""))(r)
	}}
	claim, err := client.ClaimAndWait(t.Context(), clientOver(t, s, w), testutil.Claim(set, "waits", 3, both(waits, timeout(expect.Patience))), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	checkOnlyClaim(t, s, claim, 3)
}

func TestClaimAndWaitTellsWhatEndedShort(t *testing.T) {
	s, set := stocked(t, 1, withSyncWindow(time.Millisecond))
	var claim *v1alpha1.SandboxClaim
	var err error
	var waiting sync.WaitGroup
	waiting.Go(func() {
		claim, err = client.ClaimAndWait(t.Context(), clientOver(t, s, &wire{}), testutil.Claim(set, "short", 3, both(waits, timeout(expect.Patience))), client.Options{})
	})
	s.AwaitClaim(t, namespace, "short", func(c *v1alpha1.SandboxClaim) string {
		if c.Status.ClaimedReplicas != 1 {
			return "it has not claimed what there is"
		}
		return ""
	})
	if _, err := claims(s).Patch(t.Context(), "short", types.MergePatchType, []byte(`{"spec":{"claimTimeout":"1s"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	var short *client.IncompleteError
	if !errors.As(err, &short) || short.Reason != v1alpha1.ReasonTimeoutReached || !strings.Contains(err.Error(), "default/short ended with 1/3 sandboxes") {
		t.Fatalf("got %v, want to hear what it ended with", err)
	}
	checkOnlyClaim(t, s, claim, 1)

	w := &wire{}
	agents := clientOver(t, s, w)
	go func() {
		<-w.firstWatchStarted
		if err := claims(s).Delete(context.WithoutCancel(t.Context()), "deleted", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	if _, err := client.ClaimAndWait(t.Context(), agents, testutil.Claim(set, "deleted", 3, both(waits, timeout(expect.Patience))), client.Options{}); !apierrors.IsNotFound(err) {
		t.Errorf("the claim is deleted while it is waited for: %v", err)
	}
}

// A client that gives up learns what is left, or leaves nothing.
func TestClaimAndWaitGivesUp(t *testing.T) {
	for name, test := range map[string]struct {
		policy client.GiveUpPolicy
		change func(*v1alpha1.SandboxClaim)
		says   string
		left   int
	}{
		"it stays":                   {client.GiveUpKeep, waits, "which was left Claiming with 1/3 sandboxes", 1},
		"it is given back":           {client.GiveUpGiveBack, waits, "which was given back", 0},
		"it is given back, with all": {client.GiveUpGiveBack, both(waits, func(c *v1alpha1.SandboxClaim) { c.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete }), "which was given back", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, set := stocked(t, 1, withSyncWindow(time.Millisecond))
			knows(t, s, set, 1)
			w := &wire{create: first(lost)}
			agents := clientOver(t, s, w)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-w.firstWatchStarted
				s.AwaitClaim(t, namespace, "late", func(c *v1alpha1.SandboxClaim) string {
					if c.Status.ClaimedReplicas != 1 {
						return "holds nothing yet"
					}
					return ""
				})
				cancel(context.DeadlineExceeded)
			}()
			wanted := testutil.Claim(set, "late", 3, both(test.change, timeout(expect.Patience)))
			_, err := client.ClaimAndWait(ctx, agents, wanted, client.Options{OnGiveUp: test.policy, GiveUpTimeout: expect.Patience})
			var gaveUp *client.GivenUpError
			if !errors.As(err, &gaveUp) || !errors.Is(err, context.DeadlineExceeded) || !gaveUp.Known ||
				!strings.Contains(err.Error(), "SandboxClaim default/late, "+test.says) {
				t.Fatalf("got %v, want %q", err, test.says)
			}
			if gaveUp.GivenBack != (test.left == 0) {
				t.Errorf("given back: %t", gaveUp.GivenBack)
			}
			list, err := claims(s).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != test.left {
				t.Errorf("%d claims are left, want %d: %v", len(list.Items), test.left, err)
			}
			// With reclaimPolicy Delete the garbage collector deletes, which does not run here.
			for _, sb := range owned(t, s, gaveUp.Claim) {
				if test.left == 0 && !metav1.IsControlledBy(&sb, gaveUp.Claim) {
					t.Errorf("sandbox %s is left", sb.Name)
				}
			}
		})
	}
}

// A create that is under way when its caller leaves is answered, so that what it made is
// given back, also if it is carried out later than a look would find it.
func TestClaimAndWaitLeavesDuringTheCreate(t *testing.T) {
	s, set := stocked(t, 1, withSyncWindow(time.Millisecond))
	knows(t, s, set, 1)
	ctx, leave := context.WithCancel(t.Context())
	w := &wire{create: func(r request) (*http.Response, error) {
		leave()
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(100 * time.Millisecond):
			return r.send()
		}
	}}
	_, err := client.ClaimAndWait(ctx, clientOver(t, s, w), testutil.Claim(set, "left", 3, both(waits, timeout(expect.Patience))),
		client.Options{OnGiveUp: client.GiveUpGiveBack, GiveUpTimeout: expect.Patience})
	var gaveUp *client.GivenUpError
	if !errors.As(err, &gaveUp) || !errors.Is(err, context.Canceled) || !gaveUp.GivenBack {
		t.Fatalf("got %v, want to hear that it was given back", err)
	}
	if list, err := claims(s).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("%d claims are left: %v", len(list.Items), err)
	}
}

// Without any clear answer it is said that it is not known what there is.
func TestClaimAndWaitGivesUpInTheDark(t *testing.T) {
	s, set := stocked(t, 1)
	w := &wire{create: func(r request) (*http.Response, error) {
		return answer(r.Request, http.StatusBadGateway, "", "bad gateway"), nil
	}}
	_, err := client.ClaimAndWait(t.Context(), clientOver(t, s, w), testutil.Claim(set, "dark", 1, nil), client.Options{RetryFor: time.Second})
	var gaveUp *client.GivenUpError
	if !errors.As(err, &gaveUp) || gaveUp.Known || gaveUp.Claim != nil || !strings.Contains(err.Error(), "not known whether it is stored") {
		t.Errorf("got %v, want to hear that it is not known", err)
	}
}

func TestReleaseAndRuntimeAccessOfClients(t *testing.T) {
	s, set := stocked(t, 3)
	agents := clientOver(t, s, &wire{})
	claim, err := client.ClaimAndWait(t.Context(), agents, testutil.Claim(set, "run", 3, nil), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	access, err := client.RuntimeAccess(t.Context(), agents, claim)
	if err != nil || len(access) != 3 {
		t.Errorf("told of %d runtimes, want 3: %v", len(access), err)
	}
	one := claim.Status.Sandboxes[0].Name
	if released, err := client.Release(t.Context(), agents, claim, one); err != nil || fmt.Sprint(released) != "["+one+"]" {
		t.Errorf("released %v, want %s: %v", released, one, err)
	}
	for _, want := range []int{2, 0} {
		if released, err := client.Release(t.Context(), agents, claim); err != nil || len(released) != want {
			t.Errorf("released %v, want %d: %v", released, want, err)
		}
	}
	other := claim.DeepCopy()
	other.UID = "another"
	if _, err := client.Release(t.Context(), agents, other); !apierrors.IsConflict(err) {
		t.Errorf("release of a claim with another UID: %v", err)
	}
	for range 2 {
		if err := client.GiveBack(t.Context(), agents, claim); err != nil {
			t.Errorf("giving back: %v", err)
		}
	}
}
