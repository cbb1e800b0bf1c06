// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/cli"
	"github.com/sandlot-io/sandlot/pkg/standalone"
	"github.com/sandlot-io/sandlot/pkg/storecheck"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// TestCheckOfAStore runs "sandlot check --etcd-servers" on a store that is well, that has a
// breach, and that cannot be read.
func TestCheckOfAStore(t *testing.T) {
	s := testutil.Start(t)
	set := s.Set(t, "team", "pool", 2)
	s.Stock(t, set, 0, 2)
	claim, err := s.Client.AgentsV1alpha1().SandboxClaims("team").Create(t.Context(), testutil.Claim(set, "claim", 1, nil), metav1.CreateOptions{})
	if err != nil || len(claim.Status.Sandboxes) != 1 {
		t.Fatalf("claimed %+v, %v", claim, err)
	}
	s.Stop()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: s.EtcdServers})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	put := func(key, value string) {
		t.Helper()
		if _, err := etcd.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	patience := time.Hour
	check := func(args ...string) (stdout, stderr string, code int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var out, errOut bytes.Buffer
		command := standalone.NewCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
		command.SetArgs(append([]string{"check"}, args...))
		code = cli.Report(&errOut, command.ExecuteContext(ctx))
		return out.String(), errOut.String(), code
	}
	servers := "--etcd-servers=" + strings.Join(s.EtcdServers, ",")
	expect := func(when string, wantCode int, wantOut, wantErr string, args ...string) {
		t.Helper()
		stdout, stderr, code := check(args...)
		if code != wantCode || !strings.Contains(stdout, wantOut) || !strings.Contains(stderr, wantErr) || wantErr == "" && stderr != "" {
			t.Errorf("%s: ended with %d and said:\n%s%s\nwant %d, %q and %q", when, code, stdout, stderr, wantCode, wantOut, wantErr)
		}
	}

	expect("well", 0, "1 claims, 2 sandboxes, 1 sets, 0 templates; 0 errors, 0 warnings\n", "", servers)
	expect("help", 0, "sandlot check --etcd-servers=", "", "--help")
	expect("a flag without a store", 1, "", "--etcd-prefix is for a store: give --etcd-servers too", "--etcd-prefix=/a")
	expect("another format", 1, "", `--output "xml"`, servers, "-o", "xml")
	expect("another prefix", 2, "nothing is stored below /elsewhere/", "not all of the store could be read", servers, "--etcd-prefix=/elsewhere")

	foreign := options.EtcdPrefix + "/agents.kruise.io/sandboxes/team/encrypted"
	put(foreign, "k8s:enc:aesgcm:v1:a:secret")
	expect("what is encrypted", 2, "-> give --encryption-provider-config", "not all of the store could be read", servers)

	put(foreign, "{")
	expect("a breach", 1, "Undecodable", "the check found 1 error", servers)
	stdout, _, code := check(servers, "-o", "json")
	var report storecheck.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	patience = time.Second // for what never answers
	expect("no etcd", 2, "", "does not answer", "--etcd-servers=http://127.0.0.1:1")
	if code != 1 || report.Errors() != 1 || report.Objects["sandboxes"] != 2 || report.Findings[0].Objects[0] != foreign {
		t.Errorf("ended with %d and reported %+v", code, report)
	}
}
