// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

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
)

// errTooLarge means that an answer of the API server is longer than maxAnswer.
var errTooLarge = fmt.Errorf("an answer of the API server is longer than %d bytes", maxAnswer)

// fetch reads what a request to the API server is answered with, and hands it to use. As long as
// a large answer is read and used it has its place.
func (c *call) fetch(ctx context.Context, request *rest.Request, into runtime.Object, use func()) error {
	body, err := request.SetHeader("Accept", "application/json").Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	text := new(bytes.Buffer)
	if _, err := io.CopyN(text, body, smallAnswer); err == nil {
		if err := c.api.large.Acquire(ctx, 1); err != nil {
			return err
		}
		defer c.api.large.Release(1)
		if _, err := io.CopyN(text, body, maxAnswer-smallAnswer+1); err == nil {
			return errTooLarge
		} else if !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading an answer of the API server: %w", err)
		}
	} else if !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading an answer of the API server: %w", err)
	}
	if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), text.Bytes(), into); err != nil {
		return fmt.Errorf("reading an answer of the API server: %w", err)
	}
	use()
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
