// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/scheme"
)

const (
	// smallResponse is how many bytes of a response of the API server each request may read at
	// any time: enough for most objects. For more it needs a slot, of which there are largeAtOnce,
	// and reads at most maxResponse. An object has less than that.
	smallResponse = 64 << 10
	maxResponse   = 4 << 20
	largeAtOnce   = 32
	// smallPage is how many objects are read at a time if they may be large.
	smallPage = 16
	// maxRetries is how often a request is sent again after its connection was lost.
	maxRetries = 4
)

var (
	// errTooLarge means that a response of the API server is longer than maxResponse.
	errTooLarge = fmt.Errorf("an answer of the API server is longer than %d bytes", maxResponse)
	// errNoSlot means that a response is large, and that there is no slot for it now.
	errNoSlot = errors.New("the answer of the API server needs a slot")
)

// getObject sends a GET, decodes the response into an object, and calls handle.
func (t *teamClient) getObject(ctx context.Context, get *rest.Request, into runtime.Object, handle func()) error {
	return t.do(ctx, get, get, into, handle)
}

// do sends a request to the API server, decodes the response into an object, and calls handle. get is
// the GET of the same object. handle must not keep more of the object than it needs.
//
// A response over 64 KiB needs a slot until handle returns. If none is free, do drops the response, waits
// for a slot, and sends get, so that waiting requests hold no memory.
func (t *teamClient) do(ctx context.Context, request, get *rest.Request, into runtime.Object, handle func()) error {
	release := func() {}
	defer func() { release() }()
	hasSlot := false
	takeSlot := func() bool {
		if !hasSlot {
			if taken, ok := t.api.largeResponseSlots.Take(t.team); ok {
				release, hasSlot = taken, true
			}
		}
		return hasSlot
	}
	text, err := t.readWithRetry(ctx, request, request != get, takeSlot)
	if errors.Is(err, errNoSlot) {
		taken, waitErr := t.api.largeResponseSlots.Wait(ctx, t.team)
		if waitErr != nil {
			return waitErr
		}
		release, hasSlot = taken, true
		text, err = t.readWithRetry(ctx, get, false, takeSlot)
	}
	if err != nil {
		return err
	}
	if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), text, into); err != nil {
		return fmt.Errorf("reading an answer of the API server: %w", err)
	}
	handle()
	return nil
}

// readResponse sends a request and returns the response. takeSlot reports whether the request has a slot
// for a large response.
func readResponse(ctx context.Context, request *rest.Request, takeSlot func() bool) ([]byte, error) {
	// Without retries of client-go, which takes up to ten for as long as responses have a Retry-After. SDKs
	// repeat a 429 themselves.
	body, err := request.MaxRetries(0).SetHeader("Accept", "application/json").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text := new(bytes.Buffer)
	_, err = io.CopyN(text, body, smallResponse)
	if err == nil {
		if !takeSlot() {
			return nil, errNoSlot
		}
		if _, err = io.CopyN(text, body, maxResponse-smallResponse+1); err == nil {
			return nil, errTooLarge
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading an answer of the API server: %w", err)
	}
	return text.Bytes(), nil
}

// readWithRetry sends a request and returns the response. It sends the request again, as retryLost does.
func (t *teamClient) readWithRetry(ctx context.Context, request *rest.Request, isWrite bool, takeSlot func() bool) (text []byte, err error) {
	err = t.retryLost(ctx, isWrite, func() error {
		text, err = readResponse(ctx, request, takeSlot)
		return err
	})
	return text, err
}

// retryLost calls send again, a few times, if the connection of its request is lost. The request is a GET,
// or is for one version of an object, so that it has no effect a second time.
func (t *teamClient) retryLost(ctx context.Context, isWrite bool, send func() error) error {
	for backoff := (wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: maxRetries}); ; {
		err := send()
		isLost := isConnectionLost(err)
		t.hasLostWrite = t.hasLostWrite || isLost && isWrite
		if !isLost || backoff.Steps == 0 {
			return err
		}
		delay := time.NewTimer(backoff.Step())
		select {
		case <-delay.C:
		case <-ctx.Done():
			delay.Stop()
			return ctx.Err()
		}
	}
}

// isConnectionLost reports whether the connection of a request was lost, before or in its response.
func isConnectionLost(err error) bool {
	return err != nil && (errors.Is(err, io.ErrUnexpectedEOF) ||
		utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err))
}

// sendOnly sends a request to the API server, and discards the response.
func sendOnly(ctx context.Context, request *rest.Request) error {
	body, err := request.MaxRetries(0).Stream(ctx) // as in readResponse
	if err != nil {
		return err
	}
	defer body.Close()
	// The connection can be used again after the end of the response. It does not matter if that is lost.
	_, _ = io.CopyN(io.Discard, body, smallResponse)
	return nil
}

// list reads a page of a list of the team into an object, and calls handle. If a page is too large, list
// reads it again with fewer objects, and later pages too.
func (t *teamClient) list(ctx context.Context, resource string, options metav1.ListOptions, into runtime.Object, handle func()) error {
	for {
		if t.maxPageSize > 0 && (options.Limit == 0 || options.Limit > t.maxPageSize) {
			options.Limit = t.maxPageSize
		}
		request := t.agents.RESTClient().Get().Namespace(t.team).Resource(resource).VersionedParams(&options, scheme.ParameterCodec)
		err := t.getObject(ctx, request, into, handle)
		if !errors.Is(err, errTooLarge) || options.Limit == 1 {
			return err
		}
		t.maxPageSize = smallPage
		if options.Limit > 0 {
			t.maxPageSize = max(options.Limit/4, 1)
		}
	}
}

// getByName reads the object of a name of the team, and calls handle.
func (t *teamClient) getByName(ctx context.Context, resource, name string, into runtime.Object, handle func()) error {
	return t.getObject(ctx, t.agents.RESTClient().Get().Namespace(t.team).Resource(resource).Name(name), into, handle)
}

// getSandboxByName returns the sandbox of a name of the team.
func (t *teamClient) getSandboxByName(ctx context.Context, name string) (*v1alpha1.Sandbox, error) {
	var sb v1alpha1.Sandbox
	if err := t.getByName(ctx, "sandboxes", name, &sb, func() {}); err != nil {
		return nil, err
	}
	return &sb, nil
}

// patchSandbox patches a sandbox of the team, and returns it as it is then or later.
func (t *teamClient) patchSandbox(ctx context.Context, was *v1alpha1.Sandbox, patch []byte) (*v1alpha1.Sandbox, error) {
	to := func(request *rest.Request) *rest.Request {
		return request.Namespace(t.team).Resource("sandboxes").Name(was.Name)
	}
	agents := t.agents.RESTClient()
	var sb v1alpha1.Sandbox
	if err := t.do(ctx, to(agents.Patch(types.MergePatchType)).Body(patch), to(agents.Get()), &sb, func() {}); err != nil {
		return nil, err
	}
	if sb.UID != was.UID {
		return nil, apierrors.NewNotFound(v1alpha1.Resource("sandboxes"), was.Name)
	}
	return &sb, nil
}
