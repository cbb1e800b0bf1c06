// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/replicas"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// TestSecretsStaySecret: the values of envVars are in the spec of the claim, which who
// reads them may read, and nowhere else, and tokens are nowhere: neither in an object, nor
// in a status, the log, or the metrics. Also not where a runtime sends them back.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	const value = "correcthorsebatterystaple"
	all := replicas.New(t, programs)
	server := all.Start(t, all.Etcd[0], "-v=6", "--sync-window=100ms")
	fleet := runtimetest.Start(t)
	set := builders.Set("pool", 8)
	set.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
	set, err := server.Client.AgentsV1alpha1().SandboxSets(crashNamespace).Create(t.Context(), set, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var runtimes []*runtimetest.Runtime
	stock := func(first, n int) {
		server.StockWith(t, set, first, n, func(_ int, sb *v1alpha1.Sandbox) {
			rt := fleet.Next()
			runtimes = append(runtimes, rt)
			sb.Status.SandboxIP, sb.Status.PodInfo.PodIP = rt.IP, rt.IP
		})
	}
	stock(0, 4)
	told := http.Header{"Location": {"http://" + value + "/"}, "Server": {value}, "Content-Type": {value}}
	runtimes[0].Act(runtimetest.Action{Status: http.StatusBadRequest, Body: value, Header: told}, 10)
	runtimes[1].Act(runtimetest.Action{Status: http.StatusInternalServerError, Body: value, Header: told}, 10)
	runtimes[2].Act(runtimetest.Action{Status: http.StatusFound, Body: value, Header: told}, 10)
	claim := testutil.Claim(set, "secretive", 4, func(claim *v1alpha1.SandboxClaim) {
		claim.Spec.EnvVars = map[string]string{"PASSPHRASE": value}
		claim.Spec.CreateOnNoStock = new(false)
	})
	if _, err := server.CreateOnce(t.Context(), crashNamespace, claim); err != nil {
		t.Fatal(err)
	}
	stock(4, 4)
	ended := server.AwaitClaim(t, crashNamespace, claim.Name, testutil.Completed)
	if ended.Status.FailedReplicas != 3 || ended.Status.ClaimedReplicas != 4 {
		t.Errorf("ends with %+v", ended.Status)
	}

	secrets := map[string]string{"the environment": value}
	for _, rt := range runtimes {
		for _, call := range rt.Calls() {
			var sent initialization
			if err := json.Unmarshal(call.Body, &sent); err != nil || sent.EnvVars["PASSPHRASE"] != value || sent.AccessToken == "" {
				t.Errorf("%s was sent %q: %v", rt.IP, call.Body, err)
			}
			secrets["the token of "+rt.IP] = sent.AccessToken
		}
	}
	if len(secrets) < 1+4+3 {
		t.Errorf("only %d runtimes were called", len(secrets)-1)
	}
	public := etcdDump(t, all.Etcd)
	own := "/sandlot/agents.kruise.io/sandboxclaims/" + crashNamespace + "/" + claim.Name
	stored, err := testutil.StoredJSON(public[own])
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(stored, value) || !strings.Contains(stored, `"status"`) {
		t.Fatalf("the claim is not stored as expected: %q", stored)
	}
	public[own] = strings.Replace(stored, `"PASSPHRASE":"`+value+`"`, "", 1) // the spec
	public["the log"] = server.Process.Stderr.String() + server.Process.Stdout.String()
	metrics, err := server.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	public["the metrics"] = string(metrics)
	for place, text := range public {
		for what, secret := range secrets {
			if tells(text, secret) {
				t.Errorf("%s is in %s:\n%s", what, place, text)
			}
		}
	}
	if log := public["the log"]; !strings.Contains(log, "sandboxclaims") {
		t.Error("the log has nothing of claims: this test looks at the wrong one")
	}
}

// etcdDump is all that is stored.
func etcdDump(t *testing.T, etcd []string) map[string]string {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: etcd, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	all, err := client.Get(t.Context(), "/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	dump := map[string]string{}
	for _, kv := range all.Kvs {
		dump[string(kv.Key)] = string(kv.Value)
	}
	return dump
}

// tells reports whether a secret is in a text, as it is or in base64 at any offset.
func tells(text, secret string) bool {
	if strings.Contains(text, secret) {
		return true
	}
	for offset := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + secret))
		// What the neighbours of the secret have a part in.
		if strings.Contains(text, encoded[4*min(offset, 1):len(encoded)-4]) {
			return true
		}
	}
	return false
}
