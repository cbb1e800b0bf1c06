// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestBodyThatDoesNotCome: a client that sends headers and no body keeps a connection for so
// long, and not for ever. One whose body comes keeps it for the next request.
func TestBodyThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "no") })
		conn, err := s.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		answers := bufio.NewReader(conn)
		const head = "POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 10\r\n\r\n"
		for range 2 {
			if _, err := io.WriteString(conn, head+"0123456789"); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, answer.Body); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * bodyTimeout) // the connection is idle, which it may be for longer
		}
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := io.Copy(io.Discard, answers); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*bodyTimeout {
			t.Errorf("the connection has ended after %s", took)
		}
		s.stop()
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
	})
}

// TestBodiesThatNobodyReads do not stop those of other requests on their connection.
func TestBodiesThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/stalls" {
				<-r.Context().Done()
				return
			}
			_, _ = io.Copy(w, r.Body)
		})
		ctx, leave := context.WithCancel(t.Context())
		post := func(path string, body io.Reader) (string, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway"+path, body)
			if err != nil {
				return "", err
			}
			resp, err := s.client2.Do(r)
			if err != nil {
				return "", err
			}
			text, err := io.ReadAll(resp.Body)
			return string(text), errors.Join(err, resp.Body.Close())
		}
		if text, err := post("/", strings.NewReader("first")); text != "first" || err != nil {
			t.Fatalf("%q, %v", text, err)
		}
		var stalled sync.WaitGroup
		for range 50 {
			stalled.Go(func() {
				if _, err := post("/stalls", io.LimitReader(zeros{}, 1<<20)); err == nil {
					t.Error("an upload that stalls is answered")
				}
			})
		}
		synctest.Wait()
		if text, err := post("/", strings.NewReader("another")); text != "another" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		leave()
		stalled.Wait()
		s.client2.CloseIdleConnections()
		s.stop()
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
	})
}

// zeros are as many as are wanted.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
