// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"
	"strconv"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/store/snapshot"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// TestServeSnapshots: a server gives a whole snapshot if it is configured to, and to no user
// who has not proved who they are.
func TestServeSnapshots(t *testing.T) {
	etcd := testutil.StartEtcd(t)
	serving := testutil.Start(t, testutil.WithEtcd(etcd), testutil.WithOptions(func(o *options.Options) { o.ServeSnapshots = true }))
	other := testutil.Start(t, testutil.WithEtcd(etcd))
	get := func(config *rest.Config) (int, []byte) {
		t.Helper()
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+snapshot.Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if revision, err := strconv.Atoi(response.Header.Get(snapshot.RevisionHeader)); response.StatusCode == http.StatusOK && (err != nil || revision < 1) {
			t.Errorf("the revision is %d, %v", revision, err)
		}
		content, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, content
	}
	code, content := get(serving.Config)
	if code != http.StatusOK || len(content) <= sha256.Size {
		t.Fatalf("%d, %d bytes", code, len(content))
	}
	data, sum := content[:len(content)-sha256.Size], content[len(content)-sha256.Size:]
	if want := sha256.Sum256(data); !bytes.Equal(want[:], sum) {
		t.Error("the snapshot does not end with its checksum")
	}
	anonymous := rest.AnonymousClientConfig(serving.Config)
	if code, _ := get(anonymous); code != http.StatusUnauthorized && code != http.StatusForbidden {
		t.Errorf("anonymous: %d", code)
	}
	if code, _ := get(other.Config); code != http.StatusNotFound {
		t.Errorf("a server that was not told to: %d", code)
	}
}
