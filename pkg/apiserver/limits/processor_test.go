// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// blockedWriter is a response that is not read.
type blockedWriter struct {
	*httptest.ResponseRecorder
	writing, read chan struct{}
}

// Write implements http.ResponseWriter.
func (w blockedWriter) Write(p []byte) (int, error) {
	w.writing <- struct{}{}
	<-w.read
	return len(p), nil
}

// TestProcessorSlots checks how many reads of a user are encoded at a time: those of others begin meanwhile, those that
// wait for their client to read leave their slot to the next, and watches need none.
func TestProcessorSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Accounts of a namespace count for one user.
		const eve, watcher, ann = "system:serviceaccount:team:eve", "system:serviceaccount:team:watcher", "ann"
		encoding, end := make(chan string), map[string]chan struct{}{eve: make(chan struct{}), watcher: make(chan struct{}), ann: make(chan struct{})}
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
		}), func(_ *http.Request, info *request.RequestInfo) bool { return info.Verb == "watch" })
		do := func(ctx context.Context, w http.ResponseWriter, name, verb string) {
			ctx = request.WithUser(ctx, &user.DefaultInfo{Name: name})
			ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: verb, APIGroup: v1alpha1.GroupName, Resource: "sandboxes"})
			handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		}
		ofUser := max(runtime.GOMAXPROCS(0)/2, 1)
		unread := blockedWriter{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
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
		for name, verb := range map[string]string{ann: "list", watcher: "watch"} {
			go do(t.Context(), httptest.NewRecorder(), name, verb)
			if who := <-encoding; who != name {
				t.Fatal(who)
			}
			close(end[name])
			<-encoding
		}

		next := blockedWriter{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
		go do(t.Context(), next, eve, "list")
		synctest.Wait()
		select {
		case <-encoding:
			t.Fatal("an answer is encoded although there is no slot")
		default:
		}
		end[eve] <- struct{}{}
		<-unread.writing
		if who := <-encoding; who != eve { // while the first waits for its client
			t.Fatal(who)
		}
		unread.read <- struct{}{}
		synctest.Wait()
		select {
		case <-encoding:
			t.Fatal("an answer is encoded further although there is no slot")
		default:
		}
		for range ofUser {
			end[eve] <- struct{}{}
		}
		// All of them end, in any order.
		go func() {
			for range ofUser - 1 {
				<-unread.writing
				unread.read <- struct{}{}
			}
		}()
		go func() {
			<-next.writing
			next.read <- struct{}{}
		}()
		for range ofUser + 1 {
			<-encoding
		}
	})
}
