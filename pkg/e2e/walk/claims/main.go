// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command claims is built with coverage by TestWarmClaimWalk. It runs an API server, creates
// claims that ask for nothing but one sandbox of a pool, one after the other. It writes what each of
// NUMBER claims executed, and what each of as many others cost, into folders below FOLDER:
//
//	claims FOLDER NUMBER
package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime/coverage"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/e2e/walk"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// settleTime is how long code may run after the response that still counts for the claim, such as
// what the index does when it sees the claim in its watch.
const settleTime = 300 * time.Millisecond

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: claims FOLDER NUMBER")
		os.Exit(2)
	}
	number, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "number of claims:", err)
		os.Exit(2)
	}
	folder := os.Args[1]
	// The helpers of tests need a test.
	testing.Main(func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "Claims", F: func(t *testing.T) { claims(t, folder, number) }}}, nil, nil)
}

// claims creates claims, and writes what they executed and cost.
func claims(t *testing.T, folder string, number int) {
	if err := coverage.WriteMetaDir(folder); err != nil {
		t.Fatal(err)
	}
	// The first claim also executes what is done only once. The index of a server that starts with the
	// sandboxes has them all when it is ready.
	stocked := testutil.Start(t)
	stocked.Stock(t, stocked.Set(t, "team", "pool", int32(2*number)+1), 0, 2*number+1)
	stocked.Stop()
	// A server on a store of another writes JSON for its first half minute.
	server := testutil.Start(t, testutil.WithEtcd(stocked.EtcdServers),
		testutil.WithConfig(func(c *apiserver.Config) { c.ExtraConfig.StorageFormat.UseProtobuf() }))
	client, err := rest.HTTPClientFor(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	create(t, client, server.Config.Host, 0)
	time.Sleep(settleTime)
	for i := 1; i <= number; i++ {
		if err := coverage.ClearCounters(); err != nil {
			t.Fatal(err)
		}
		create(t, client, server.Config.Host, i)
		time.Sleep(settleTime)
		claim := filepath.Join(folder, strconv.Itoa(i))
		if err := os.Mkdir(claim, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := coverage.WriteCountersDir(claim); err != nil {
			t.Fatal(err)
		}
	}
	debug.SetGCPercent(-1) // A garbage collection would empty the pools of the encoders.
	for i := 1; i <= number; i++ {
		cost := walk.Measure(t, func() {
			create(t, client, server.Config.Host, number+i)
			time.Sleep(settleTime)
		})
		cost.Write(t, filepath.Join(folder, strconv.Itoa(i)))
	}
}

// create creates a claim. It uses no client of ours, which would be counted.
func create(t *testing.T, client *http.Client, host string, i int) {
	t.Helper()
	claim := fmt.Sprintf(`{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","metadata":{"name":"claim-%d"},"spec":{"templateName":"pool"}}`, i)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		host+"/apis/agents.kruise.io/v1alpha1/namespaces/team/sandboxclaims", bytes.NewReader([]byte(claim)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	if _, err := body.ReadFrom(response.Body); err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusCreated || !bytes.Contains(body.Bytes(), []byte(`"phase":"Completed"`)) {
		t.Fatalf("claim %d: %s, %s", i, response.Status, body.Bytes())
	}
}
