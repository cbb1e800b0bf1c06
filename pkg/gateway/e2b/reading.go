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
	// smallAnswer is how many bytes of an answer of the API server each request may read at
	// any time: enough for most objects. For more it takes a place, of which there are
	// largeAtOnce, and reads maxAnswer at most. An object has less than that.
	smallAnswer = 64 << 10
	maxAnswer   = 4 << 20
	largeAtOnce = 32
	// smallPage is how many objects are read at a time where they may be large.
	smallPage = 16
	// maxRetries is how often a GET is sent again whose connection is lost.
	maxRetries = 4
)

var (
	// errTooLarge means that an answer of the API server is longer than maxAnswer.
	errTooLarge = fmt.Errorf("an answer of the API server is longer than %d bytes", maxAnswer)
	// errNoPlace means that an answer is large, and that its team has its share of the places.
	errNoPlace = errors.New("the answer of the API server needs a place")
)

// fetch reads what a GET is answered with, and hands it to use.
func (c *call) fetch(ctx context.Context, get *rest.Request, into runtime.Object, use func()) error {
	return c.exchange(ctx, get, get, into, use)
}

// exchange sends a request to the API server, and hands its answer to use. As long as a large
// answer is read and used it has its place, which teams share. An answer for which there is none
// is given up, and read by get when there is one: what is not read would be in memory as well.
func (c *call) exchange(ctx context.Context, request, get *rest.Request, into runtime.Object, use func()) error {
	release := func() {}
	defer func() { release() }()
	placed := false
	place := func() bool {
		if !placed {
			if taken, ok := c.api.large.Take(c.caller.Team); ok {
				release, placed = taken, true
			}
		}
		return placed
	}
	first := read
	if request == get {
		first = readSafely
	}
	text, err := first(ctx, request, place)
	if errors.Is(err, errNoPlace) {
		taken, waitErr := c.api.large.Wait(ctx, c.caller.Team)
		if waitErr != nil {
			return waitErr
		}
		release, placed = taken, true
		text, err = readSafely(ctx, get, place)
	}
	if err != nil {
		return err
	}
	if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), text, into); err != nil {
		return fmt.Errorf("reading an answer of the API server: %w", err)
	}
	use()
	return nil
}

// read returns what a request is answered with. place reports whether a large answer has a place.
func read(ctx context.Context, request *rest.Request, place func() bool) ([]byte, error) {
	body, err := request.SetHeader("Accept", "application/json").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text := new(bytes.Buffer)
	_, err = io.CopyN(text, body, smallAnswer)
	if err == nil {
		if !place() {
			return nil, errNoPlace
		}
		if _, err = io.CopyN(text, body, maxAnswer-smallAnswer+1); err == nil {
			return nil, errTooLarge
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading an answer of the API server: %w", err)
	}
	return text.Bytes(), nil
}

// readSafely returns what a GET is answered with. It sends the GET again, a few times, if its
// connection is lost.
func readSafely(ctx context.Context, get *rest.Request, place func() bool) ([]byte, error) {
	for pace := (wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: maxRetries}); ; {
		text, err := read(ctx, get, place)
		if !isLost(err) || pace.Steps == 0 {
			return text, err
		}
		delay := time.NewTimer(pace.Step())
		select {
		case <-delay.C:
		case <-ctx.Done():
			delay.Stop()
			return nil, ctx.Err()
		}
	}
}

// isLost reports whether the connection of a request was lost, before or in its answer.
func isLost(err error) bool {
	return err != nil && (errors.Is(err, io.ErrUnexpectedEOF) ||
		utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err))
}

// send sends a request to the API server of whose answer nothing is needed.
func send(ctx context.Context, request *rest.Request) error {
	body, err := request.Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	// Read to its end, the connection can be used again. What is lost of it says nothing.
	_, _ = io.CopyN(io.Discard, body, smallAnswer)
	return nil
}

// list reads a page of a list of the team, and hands it to use. A page that is too large is
// read again with fewer objects, and so are those after it.
func (c *call) list(ctx context.Context, resource string, options metav1.ListOptions, into runtime.Object, use func()) error {
	for {
		if c.fit > 0 && (options.Limit == 0 || options.Limit > c.fit) {
			options.Limit = c.fit
		}
		request := c.agents.RESTClient().Get().Namespace(c.caller.Team).Resource(resource).VersionedParams(&options, scheme.ParameterCodec)
		err := c.fetch(ctx, request, into, use)
		if !errors.Is(err, errTooLarge) || options.Limit == 1 {
			return err
		}
		c.fit = smallPage
		if options.Limit > 0 {
			c.fit = max(options.Limit/4, 1)
		}
	}
}

// named reads the object of a name of the team, and hands it to use.
func (c *call) named(ctx context.Context, resource, name string, into runtime.Object, use func()) error {
	return c.fetch(ctx, c.agents.RESTClient().Get().Namespace(c.caller.Team).Resource(resource).Name(name), into, use)
}

// sandboxNamed reads the sandbox of a name of the team.
func (c *call) sandboxNamed(ctx context.Context, name string) (*v1alpha1.Sandbox, error) {
	var sb v1alpha1.Sandbox
	if err := c.named(ctx, "sandboxes", name, &sb, func() {}); err != nil {
		return nil, err
	}
	return &sb, nil
}

// patchSandbox patches a sandbox of the team, and returns it as it is then or later.
func (c *call) patchSandbox(ctx context.Context, was *v1alpha1.Sandbox, patch []byte) (*v1alpha1.Sandbox, error) {
	to := func(request *rest.Request) *rest.Request {
		return request.Namespace(c.caller.Team).Resource("sandboxes").Name(was.Name)
	}
	agents := c.agents.RESTClient()
	var sb v1alpha1.Sandbox
	if err := c.exchange(ctx, to(agents.Patch(types.MergePatchType)).Body(patch), to(agents.Get()), &sb, func() {}); err != nil {
		return nil, err
	}
	if sb.UID != was.UID {
		return nil, apierrors.NewNotFound(v1alpha1.Resource("sandboxes"), was.Name)
	}
	return &sb, nil
}
