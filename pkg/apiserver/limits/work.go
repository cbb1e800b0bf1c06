// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"errors"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/registry/sandbox/base"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
)

// runningRequest is a request that may take much memory or processor time while it is handled: see isBounded. The methods
// are safe for concurrent use: its work may still be done when it has ended.
type runningRequest struct {
	limits  *BodyLimits
	account string
	// isSmall is set if its body is not large, and isExempt if it takes no slots of work, and for its memory only if it is
	// not small.
	isSmall, isExempt bool

	mu sync.Mutex
	// slots is how many slots of work it has.
	slots                      int
	releaseMemory, releaseWork func()
	// works is how much work is being done, such as updates that are computed. It keeps the slots.
	works int
	// responds is set when the response is written, and hasEnded when that has ended.
	responds, hasEnded bool
}

// start waits for the slot of a request for its memory. The error is an API status error.
func (l *BodyLimits) start(req *http.Request) (*runningRequest, error) {
	user, _ := request.UserFrom(req.Context())
	r := &runningRequest{
		limits: l, account: accountOf(req), isSmall: req.ContentLength >= 0 && req.ContentLength <= largeBody,
		isExempt: user != nil && l.exempt.Has(user.GetName()), releaseMemory: func() {}, releaseWork: func() {},
	}
	if r.isExempt && r.isSmall {
		return r, nil
	}
	ctx, cancel := context.WithTimeout(req.Context(), l.largeWait)
	defer cancel()
	release, err := l.large.Wait(ctx, r.account)
	if err != nil {
		return nil, tooManyLarge()
	}
	r.releaseMemory = release
	return r, nil
}

func tooManyLarge() error {
	return apierrors.NewTooManyRequests("too many updates, dry runs and large requests of this user are under way, please try again later", 1)
}

// errEnded is the error of work that a request begins when it has ended.
var errEnded = errors.New("the request has ended")

// begin waits for the slots of work of a request whose body has arrived. The error is an API status error.
func (r *runningRequest) begin(req *http.Request) error {
	if !r.isSmall {
		return r.take(req.Context(), maxWork*workUnit)
	}
	return r.take(req.Context(), int(req.ContentLength))
}

// context returns a context in which the handlers say what the request does.
func (r *runningRequest) context(ctx context.Context) context.Context {
	return base.WithWork(sandboxclaim.WithWaiting(ctx, r.wait), r.work)
}

// take waits for the slots of work for so many bytes, if the request has fewer. The error is an API status error or
// errEnded.
func (r *runningRequest) take(ctx context.Context, bytes int) error {
	slots := min(max((bytes+workUnit-1)/workUnit, 1), maxWork)
	r.mu.Lock()
	has, release, hasEnded := r.slots, r.releaseWork, r.responds || r.hasEnded
	if has < slots && !hasEnded && !r.isExempt {
		r.slots, r.releaseWork = 0, func() {}
	}
	r.mu.Unlock()
	switch {
	case hasEnded:
		return errEnded
	case has >= slots || r.isExempt:
		return nil
	}
	release() // requests that had some and waited for more could wait for each other
	ctx, cancel := context.WithTimeout(ctx, r.limits.largeWait)
	defer cancel()
	release, err := r.limits.work.WaitFor(ctx, r.account, slots)
	if err != nil {
		return tooManyLarge()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots, r.releaseWork = slots, release
	r.releaseUnused()
	return nil
}

// work waits for the slots of work for so many bytes. The request keeps them until end is called.
func (r *runningRequest) work(ctx context.Context, bytes int) (end func(), err error) {
	if err := r.take(ctx, bytes); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.responds || r.hasEnded {
		return nil, errEnded
	}
	r.works++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.works--
		r.releaseUnused()
	}, nil
}

// wait releases the slots of a claim that may wait for sandboxes. A large one keeps that of its memory. If the claim
// exists after all, it is updated, and takes slots of work again.
func (r *runningRequest) wait() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releaseWork()
	r.slots = 0
	if r.isSmall {
		r.releaseMemory()
	}
}

// respond notes that the response is written: the client may take its time to read it.
func (r *runningRequest) respond() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.responds = true
	r.releaseUnused()
}

// end notes that the request has ended.
func (r *runningRequest) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hasEnded = true
	r.releaseUnused()
}

// releaseUnused releases the slots that the request does not use any more. The caller has the lock.
func (r *runningRequest) releaseUnused() {
	if r.works > 0 {
		return
	}
	if r.responds || r.hasEnded {
		r.releaseWork()
	}
	if r.hasEnded {
		r.releaseMemory()
	}
}

// runningResponse is the response to a runningRequest.
type runningResponse struct {
	http.ResponseWriter
	request *runningRequest
}

// Write implements http.ResponseWriter.
func (r *runningResponse) Write(p []byte) (int, error) {
	r.request.respond()
	return r.ResponseWriter.Write(p)
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (r *runningResponse) Unwrap() http.ResponseWriter { return r.ResponseWriter }
