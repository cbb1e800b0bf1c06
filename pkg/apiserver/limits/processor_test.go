// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// TestProcessorSlots checks how many reads of a user are encoded at a time: those of others begin meanwhile, those that
// wait for their client to read leave their slot to the next, and exempt users need none.
func TestProcessorSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Accounts of a namespace count for one user.
		const eve, controller, ann = "system:serviceaccount:team:eve", "system:serviceaccount:team:controller", "ann"
		encoding, end := make(chan string), map[string]chan struct{}{eve: make(chan struct{}), controller: make(chan struct{}), ann: make(chan struct{})}
		handler := WithProcessorSlots(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if err := base.WaitForProcessor(req.Context()); err != nil {
				http.Error(w, err.Error(), http.StatusGatewayTimeout)
				return
			}
			who, _ := request.UserFrom(req.Context())
			encoding <- who.GetName()
			<-end[who.GetName()]
			_, _ = io.WriteString(w, "item")
			encoding <- who.GetName()
		}), sets.New(controller))
		do := func(ctx context.Context, w http.ResponseWriter, name, verb string) {
			ctx = request.WithUser(ctx, &user.DefaultInfo{Name: name})
			ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: verb, APIGroup: v1alpha1.GroupName, Resource: "sandboxes"})
			handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		}
		ofUser := max(runtime.GOMAXPROCS(0)/2, 1)
		unread := newHeldWriter()
		for range ofUser {
			go do(t.Context(), unread, eve, "list")
			<-encoding
		}
		waiting, giveUp := context.WithTimeout(t.Context(), time.Second)
		defer giveUp()
		late := httptest.NewRecorder()
		do(waiting, late, eve, "get")
		if late.Code != http.StatusGatewayTimeout {
			t.Fatalf("%d answers of a user are encoded at a time, and another began: %d", ofUser, late.Code)
		}
		for _, name := range []string{ann, controller} {
			go do(t.Context(), httptest.NewRecorder(), name, "list")
			if who := <-encoding; who != name {
				t.Fatal(who)
			}
			close(end[name])
			<-encoding
		}

		next := newHeldWriter()
		go do(t.Context(), next, eve, "list")
		synctest.Wait()
		select {
		case <-encoding:
			t.Fatal("an answer is encoded although there is no slot")
		default:
		}
		end[eve] <- struct{}{}
		<-unread.began
		if who := <-encoding; who != eve { // while the first waits for its client
			t.Fatal(who)
		}
		unread.letGo <- struct{}{}
		<-encoding
		for range ofUser {
			end[eve] <- struct{}{}
		}
		// All of them end, in any order.
		go func() {
			for range ofUser - 1 {
				<-unread.began
				unread.letGo <- struct{}{}
			}
		}()
		go func() {
			<-next.began
			next.letGo <- struct{}{}
		}()
		for range ofUser {
			<-encoding
		}
	})
}

// TestProcessorSlotsOfWatches checks that a watch has a slot for its first event, and from one to the next as long as it
// has many, but none while it has no more, or if it does not begin with any. One that gets none continues without.
func TestProcessorSlotsOfWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := fairness.NewSlots(2, 1)
		w := &slottedResponse{ResponseWriter: httptest.NewRecorder(), ctx: t.Context(), slots: slots, account: "eve", isWatch: true}
		has := func(when string, want int) {
			t.Helper()
			if got := slots.Held(); got != want {
				t.Errorf("%s: %d slots, want %d", when, got, want)
			}
		}
		event := func(bytes int) {
			t.Helper()
			if n, err := w.Write(make([]byte, bytes)); n != bytes || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := w.acquireForFirst(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Flush() // of the headers
		has("before the first event", 1)
		for range 2 {
			event(backlog)
			time.Sleep(2 * firstEvent)
			has("between two events", 1)
		}
		w.Flush()
		has("without events", 0)
		event(10)
		event(100)
		has("after one event in two writes", 0)
		event(backlog)
		event(10)
		has("with many events", 1)
		w.Flush()
		if err := w.acquireForFirst(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * firstEvent)
		has("without a first event", 0)

		release, err := slots.Wait(t.Context(), "eve")
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		before := time.Now()
		event(backlog)
		event(backlog)
		if took := time.Since(before); took != slotWaitBetween {
			t.Errorf("without a slot it waited for %s", took)
		}
	})
}

// TestProcessorSlotAfterTheEnd checks that a deletion that waits for a slot after its request has ended does not keep it,
// and that a write to a client which does not read gives the slot up and gets it back.
func TestProcessorSlotAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := fairness.NewSlots(2, 1)
		unread := newHeldWriter()
		response := func() *slottedResponse {
			return &slottedResponse{ResponseWriter: unread, ctx: t.Context(), slots: slots, account: "eve"}
		}
		first, late := response(), response()
		if err := first.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		answered := make(chan error)
		go func() { answered <- late.acquire(context.WithoutCancel(t.Context())) }()
		synctest.Wait()
		late.end()

		written := make(chan error)
		go func() {
			_, err := first.Write([]byte("item"))
			written <- err
		}()
		<-unread.began
		if err := <-answered; !errors.Is(err, errEnded) {
			t.Errorf("a request that has ended: %v", err)
		}
		if n := slots.Held(); n != 0 {
			t.Errorf("%d slots are taken while the client does not read", n)
		}
		unread.letGo <- struct{}{}
		if err := <-written; err != nil {
			t.Error(err)
		}
		first.ResponseWriter = httptest.NewRecorder()
		if _, err := first.Write([]byte("item")); err != nil || slots.Held() != 1 {
			t.Errorf("%d slots at the next write, %v", slots.Held(), err)
		}
		if err := late.acquire(t.Context()); !apierrors.IsTooManyRequests(err) {
			t.Errorf("a read without a slot for %s: %v", slotWait, err)
		}
		first.end()
		if n := slots.Held(); n != 0 {
			t.Errorf("%d slots are taken at the end", n)
		}
	})
}
