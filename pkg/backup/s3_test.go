// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestBucket keeps backups in a real S3 server.
func TestBucket(t *testing.T) {
	expect.LongOnly(t)
	b := newBucket(t)
	testTarget(t, b, 40<<20) // of several parts
	for upload := range b.client.ListIncompleteUploads(t.Context(), b.name, "", true) {
		t.Errorf("parts of an interrupted upload are left: %v", upload)
	}
	if _, err := (minio.Core{Client: b.client}).NewMultipartUpload(t.Context(), b.name, b.prefix+newName(start, 5, false), minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	// What was left lately may be in the hands of another process.
	for _, tc := range []struct {
		age  time.Duration
		left int
	}{{longestWrite, 1}, {-time.Hour, 0}} {
		if err := b.clean(t.Context(), tc.age); err != nil {
			t.Error(err)
		}
		left := 0
		for range b.client.ListIncompleteUploads(t.Context(), b.name, "", true) {
			left++
		}
		if left != tc.left {
			t.Errorf("%d unfinished uploads are left of an age of %s, want %d", left, tc.age, tc.left)
		}
	}

	s := newStore(t, "")
	s.fill(t, 5, 5)
	taker, _ := taker(t, s, b)
	prepared, err := Prepare(t.Context(), fetch(t, b, take(t, taker)).Snapshot(), t.TempDir(), DefaultPrefix, start)
	if err != nil || prepared.Emptied != 5 {
		t.Errorf("prepared %+v, %v", prepared, err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another")
	stranger, err := OpenTarget(b.url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := List(t.Context(), stranger); err == nil || strings.Contains(err.Error(), "another") {
		t.Errorf("with another key: %v", err)
	}
}

// TestLostAnswer: a backup that is kept although the client got an error is not left where it
// would count as the newest.
func TestLostAnswer(t *testing.T) {
	expect.LongOnly(t)
	b := newBucket(t)
	to, err := url.Parse("http://" + b.address)
	if err != nil {
		t.Fatal(err)
	}
	puts := 0
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // which is signed
		},
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodPut && r.StatusCode == http.StatusOK {
				puts++
				return errors.New("lost")
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadRequest) },
	})
	defer proxy.Close()
	lossy, err := openBucket(strings.ReplaceAll(b.url, to.String(), proxy.URL))
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t, "")
	s.fill(t, 1, 1)
	taker, _ := taker(t, s, lossy)
	if _, _, err := taker.Take(t.Context()); err == nil || puts == 0 {
		t.Errorf("Take: %v after %d answers that were lost", err, puts)
	}
	if names, err := b.Names(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("the bucket has %v, %v", names, err)
	}
}

type testBucket struct {
	*bucket
	url, address string
}

// newBucket runs an S3 server with a bucket for the time of a test.
func newBucket(t *testing.T) testBucket {
	t.Helper()
	out, err := exec.Command(filepath.Join("..", "..", "hack", "tool.sh"), "versitygw").Output()
	if err != nil {
		t.Fatalf("building versitygw: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	const key, secret, name = "backup", "not-a-secret", "backups"
	data, sidecar := t.TempDir(), t.TempDir() // for attributes, which not every file system has
	server := exec.CommandContext(t.Context(), strings.TrimSpace(string(out)), "--port", address, "--access", key, "--secret", secret, "posix", "--sidecar", sidecar, data)
	log, err := os.Create(filepath.Join(t.TempDir(), "versitygw.log"))
	if err != nil {
		t.Fatal(err)
	}
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Wait() }) // ended by the context
	t.Setenv("AWS_ACCESS_KEY_ID", key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	target := fmt.Sprintf("s3://%s/some/prefix?endpoint=http://%s&region=us-east-1&insecure=true", name, address)
	opened, err := openBucket(target)
	if err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		err := opened.client.MakeBucket(ctx, name, minio.MakeBucketOptions{Region: "us-east-1"})
		if minio.ToErrorResponse(err).Code == "BucketAlreadyOwnedByYou" {
			return nil
		}
		return err
	})
	return testBucket{opened, target, address}
}
