// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// maxStatus is how much of an answer is read to find out why a create was rejected, in bytes.
const maxStatus = 64 << 10

// withoutCreateRetries keeps clients from repeating creates that exceed a write limit of our API
// server, for minutes, while they hold a worker. The queues of controllers do that. Clients repeat
// what is rejected for other reasons, such as by the priority and fairness of an API server.
type withoutCreateRetries struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t withoutCreateRetries) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests && req.Method == http.MethodPost && exceedsWriteLimit(resp) {
		resp.Header.Del("Retry-After") // the error has it as well
	}
	return resp, err
}

// exceedsWriteLimit reports whether a response says that a write exceeds a write limit. The body of
// the response can be read again.
func exceedsWriteLimit(resp *http.Response) bool {
	body := resp.Body
	read, err := io.ReadAll(io.LimitReader(body, maxStatus))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(read), body), body}
	if err != nil {
		return false
	}
	answer, _, err := clientscheme.Codecs.UniversalDeserializer().Decode(read, nil, nil) // JSON or protobuf
	if err != nil {
		return false
	}
	status, ok := answer.(*metav1.Status)
	return ok && apierrors.HasStatusCause(&apierrors.StatusError{ErrStatus: *status}, v1alpha1.CauseWriteLimit)
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (t withoutCreateRetries) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
