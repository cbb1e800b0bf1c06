// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
)

// pooledBy is a sandbox of a pool with an agent-runtime.
func pooledBy(apiVersion, kind string) *v1alpha1.Sandbox {
	sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{APIVersion: apiVersion, Kind: kind, Name: "pool", Controller: new(true)},
	}}}
	sb.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
	return sb
}

// A server that does not know tokens of pools may come and go.
func TestTokensNeedAllServers(t *testing.T) {
	pools := newPoolRuntimes(nil)
	for _, test := range []struct {
		servers []string
		want    bool
	}{
		{[]string{agentruntime.ServerName("a")}, true},
		{[]string{agentruntime.ServerName("a"), "b"}, false},
		{nil, false}, // alone as far as is known
		{[]string{agentruntime.ServerName("a"), agentruntime.ServerName("b")}, true},
		{nil, true},
	} {
		pools.membersChanged(test.servers)
		if got := pools.getsToken(t.Context(), pooledBy("agents.kruise.io/v1alpha1", "SandboxSet")); got != test.want {
			t.Errorf("%v: got %t", test.servers, got)
		}
	}
}

// TestTokensBeforeTheServersAreKnown: a sandbox that comes into a pool waits for them a while, and is
// not stored without a token then.
func TestTokensBeforeTheServersAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, pools := time.Now(), newPoolRuntimes(nil)
		pools.membersChanged(nil)
		if got := pools.getsToken(t.Context(), pooledBy("agents.kruise.io/v1alpha1", "SandboxSet")); !got || time.Since(began) != joinTimeout {
			t.Errorf("got %t after %s", got, time.Since(began))
		}
		go func() {
			time.Sleep(time.Second)
			pools.membersChanged([]string{agentruntime.ServerName("a"), "older"})
		}()
		if pools.getsToken(t.Context(), pooledBy("agents.kruise.io/v1alpha1", "SandboxSet")) {
			t.Error("it gets a token beside an older server")
		}
	})
}

func TestTokensAreForOurPools(t *testing.T) {
	pools := newPoolRuntimes(nil)
	pools.membersChanged([]string{agentruntime.ServerName("a")})
	plain := pooledBy("agents.kruise.io/v1alpha1", "SandboxSet")
	plain.Spec.Runtimes, plain.Spec.Template = nil, &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"main"}]}}`)}
	brings := plain.DeepCopy()
	brings.Spec.Template.Raw = []byte(`{"spec":{"initContainers":[{"name":"runtime"}]}}`)
	for name, test := range map[string]struct {
		sb   *v1alpha1.Sandbox
		want bool
	}{
		"of a set":             {pooledBy("agents.kruise.io/v1alpha1", "SandboxSet"), true},
		"of a warm pool":       {pooledBy("extensions.agents.x-k8s.io/v1beta1", "SandboxWarmPool"), false},
		"of a claim":           {pooledBy("agents.kruise.io/v1alpha1", "SandboxClaim"), false},
		"without a runtime":    {plain, false},
		"the template has one": {brings, true},
	} {
		if got := pools.getsToken(t.Context(), test.sb); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
