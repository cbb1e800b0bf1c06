// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// lateEnd is a body with a length, of which the transport asks once more when it has all of
// it: whether it is longer than it says. That question waits.
type lateEnd struct {
	io.ReadCloser
	ended           bool
	asked, answered chan struct{}
}

// Read implements io.Reader.
func (b *lateEnd) Read(p []byte) (int, error) {
	if b.ended {
		close(b.asked)
		<-b.answered
	}
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

// TestAnswerBeforeTheEndIsSeen: an answer that begins when all of the body was read, and the
// transport does not know yet that this was all, is not broken off. A server of HTTP/1 that
// knows nothing of full duplex closes the body then; of one that is not at its end the proxy
// says by itself that it is left alone.
func TestAnswerBeforeTheEndIsSeen(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	defer cancel()
	s := newStreet(t, nil)
	asked, answered := make(chan struct{}), make(chan struct{})
	s.before = func(r *http.Request) { r.Body = &lateEnd{ReadCloser: r.Body, asked: asked, answered: answered} }
	const rounds = 2000
	heard, ended := make(chan struct{}), make(chan struct{})
	defer close(ended)
	s.box("a", "127.9.0.16", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		<-asked
		for range rounds {
			_, _ = io.WriteString(w, "part ")
			w.(http.Flusher).Flush()
			select {
			case <-heard:
			case <-ended:
				return
			}
		}
	})
	body := make([]byte, 100_000) // more than the transport keeps back
	resp, err := http.DefaultClient.Do(s.request("a", "POST", "/", bytes.NewReader(body)).WithContext(ctx))
	close(answered)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Close {
		t.Error("the connection is not kept")
	}
	part := make([]byte, len("part "))
	for i := range rounds {
		if _, err := io.ReadFull(resp.Body, part); err != nil {
			t.Fatalf("part %d: %v", i, err)
		}
		select {
		case heard <- struct{}{}:
		case <-ctx.Done():
			t.Fatal("the sandbox hears nothing")
		}
	}
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
		t.Errorf("at the end there is %q, %v", rest, err)
	}
}
