// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/memory"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// BodyLimits bound how long bodies of requests may take.
type BodyLimits struct {
	// slots are taken by bodies that have not arrived within slowAfter. Users share them.
	slots     *fairness.Slots
	slowAfter time.Duration
	// timeout is how long a body may take, and a second longer for each bodyRate bytes.
	timeout time.Duration
	// maxBytes is how many bytes of a body are read.
	maxBytes int64
	// large are taken by requests that may take much memory while they are handled. A user who has none left waits
	// for largeWait.
	large *fairness.Slots
	// work are taken by the same requests when their body has arrived, by how much processor time they may take. A
	// user who has none left waits for largeWait again.
	work      *fairness.Slots
	largeWait time.Duration
	// exempt are the names of users who need no slots of work: our controllers, whose changes are many.
	exempt sets.Set[string]
}

const (
	// largeBody is from how many bytes a body counts as large.
	largeBody = 64 << 10
	// largeMemory is the memory of the server for each request that counts as large. It takes about 3 MiB.
	largeMemory = 8 << 20
	// smallBody is up to how many bytes the body of a create needs no slots, except that of a dry run.
	smallBody = 8 << 10
	// workUnit is how many bytes of a body or of what is worked on count for one slot of work, as a sandbox does: see
	// base.BeginWork. A request has at most maxWork slots.
	workUnit = base.SandboxWork
	maxWork  = 16
)

// bodyRate is how many bytes of a body arrive in a second at least.
const bodyRate = 64 << 10

// NewBodyLimits returns the limits of a server that reads up to maxBytes of a body. The memory limit of the process
// says how many large requests are handled at a time. What the exempt users send is not bounded by processor time.
func NewBodyLimits(maxBytes int64, exempt sets.Set[string]) *BodyLimits {
	large := max(int(memory.Size()/largeMemory), 64)
	// A user has the largest requests on half of the processors. On few processors all users together have more of them
	// than there are, so that one does not wait for those of two others.
	processors := runtime.GOMAXPROCS(0)
	ofUser, all := maxWork*max(processors/2, 1), maxWork*max(processors, 4)
	return &BodyLimits{
		work: fairness.NewSlots(all, ofUser), exempt: exempt,
		slots: fairness.NewSlots(512, 64), slowAfter: time.Second, timeout: 10 * time.Second, maxBytes: maxBytes,
		large: fairness.NewSlots(large, large/2), largeWait: time.Second,
	}
}

// WithBodies reads the body of a request before the request is handled. A request whose body does not arrive has a
// seat of API priority and fairness, here and in kube-apiserver, so a user with many of them would take all seats.
// Where all slots of the user are taken it is refused with 429, and after the timeout with 408. AccountOf says who a
// user counts for. Long-running requests have no seat. It has to be inside of authentication and of
// WithConnections.
func WithBodies(handler http.Handler, limits *BodyLimits, isLongRunning request.LongRunningRequestCheck) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || req.ContentLength == 0 || req.Body == nil || isLongRunning(req, info) {
			handler.ServeHTTP(w, req)
			return
		}
		var running *runningRequest
		if isBounded(req, info) {
			var err error
			if running, err = limits.start(req); err != nil {
				refuse(w, req, info, err)
				return
			}
			defer running.end()
		}
		body, err := limits.read(req)
		if err == nil && running != nil {
			err = running.begin(req)
		}
		if err != nil {
			refuse(w, req, info, err)
			return
		}
		req.Body = body
		if running != nil {
			req = req.WithContext(running.context(req.Context()))
			w = responsewriter.WrapForHTTP1Or2(&runningResponse{w, running})
		}
		handler.ServeHTTP(w, req)
	})
}

// isBounded reports whether a request with a body needs slots. An update or a patch may be of a large object, and what a
// dry run or a create of a subresource does, such as the release of a claim, may be much although no limit of writes
// counts it.
func isBounded(req *http.Request, info *request.RequestInfo) bool {
	switch {
	case req.Method == http.MethodPatch, req.Method == http.MethodPut, req.ContentLength < 0, req.ContentLength > smallBody:
		return true
	case req.Method != http.MethodPost:
		return false
	}
	return info.Subresource != "" || req.URL.RawQuery != "" && req.URL.Query().Has("dryRun")
}

// read reads the body of a request, up to one byte more than maxBytes. Handlers refuse such a body, and meet the errors
// of the client when they read it. The errors that are returned are API status errors.
func (l *BodyLimits) read(req *http.Request) (io.ReadCloser, error) {
	expected := req.ContentLength
	if expected < 0 || expected > l.maxBytes {
		expected = l.maxBytes
	}
	slow := &slowBody{
		slots: l.slots, req: req,
		deadline: clock.RealClock{}.Now().Add(l.timeout + time.Duration(expected/bodyRate)*time.Second),
	}
	timer := time.AfterFunc(l.slowAfter, slow.begin)
	read, err := io.ReadAll(io.LimitReader(req.Body, l.maxBytes+1)) // as far as the handlers read
	timer.Stop()
	switch refused := slow.end(err); {
	case refused:
		return nil, apierrors.NewTooManyRequests("too many requests of this user have bodies that do not arrive, please try again later", 1)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusRequestTimeout, Reason: metav1.StatusReasonTimeout,
			Message: "the body of the request did not arrive in time",
		}}
	}
	rest := io.Reader(req.Body)
	if err != nil {
		rest = failed{err}
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(read), rest), req.Body}, nil
}

// slowBody gives a body that is being read a slot and a deadline, if it is slow. Where there is no slot, the deadline is
// over at once. Most bodies arrive with the headers and need neither.
type slowBody struct {
	slots    *fairness.Slots
	req      *http.Request
	deadline time.Time

	mu      sync.Mutex
	isRead  bool
	refused bool
	release func() // nil before begin, and if there is no slot
}

// begin is called when the body is slow.
func (b *slowBody) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isRead {
		return
	}
	var ok bool
	if b.release, ok = b.slots.Take(accountOf(b.req)); !ok {
		b.refused, b.deadline = true, past
	}
	deadlinesOf(b.req).setRead(b.deadline)
}

// end is called when the body is read, with the error of that. It releases the slot, and reports whether there was
// none. The next request of a connection has no deadline.
func (b *slowBody) end(err error) (refused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isRead = true
	if b.release != nil {
		b.release()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			deadlinesOf(b.req).setRead(time.Time{})
		}
	}
	return b.refused
}

// failed is a reader that fails.
type failed struct{ err error }

// Read implements io.Reader.
func (f failed) Read([]byte) (int, error) { return 0, f.err }
