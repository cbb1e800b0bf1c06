// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podaddress"
	"github.com/sandlot-io/sandlot/pkg/runtime"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

func newSetup(t *testing.T, options runtime.Options) *agentruntime.Setup {
	t.Helper()
	options.AttemptTimeout = time.Minute
	return &agentruntime.Setup{
		Keyring: newKeyring(t, 1), Client: runtime.New(options), Volumes: agentruntime.NewVolumes(nil), Pods: podaddress.New(nil),
	}
}

// setsUp sets up a sandbox that is stored as it is, unless the setup reads another.
func setsUp(ctx context.Context, setup *agentruntime.Setup, claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) error {
	with := *setup
	if with.Sandbox == nil {
		with.Sandbox = func(context.Context, string, string) (*v1alpha1.Sandbox, error) { return sb, nil }
	}
	return with.SetUp(ctx, claim, sb)
}

// An address may be another pod's by the time that its turn comes.
func TestASandboxThatHasChangedIsNotCalled(t *testing.T) {
	for name, test := range map[string]struct {
		change func(sb *v1alpha1.Sandbox)
		called bool
	}{
		"the same":       {func(*v1alpha1.Sandbox) {}, true},
		"an older state": {func(sb *v1alpha1.Sandbox) { sb.ResourceVersion, sb.Status.PodInfo.PodIP = "9", "" }, true},
		"another":        {func(sb *v1alpha1.Sandbox) { sb.UID = "other" }, false},
		"another pod":    {func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodUID = "other" }, false},
		"another IP":     {func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodIP = "10.0.0.1" }, false},
		"paused":         {func(sb *v1alpha1.Sandbox) { sb.Spec.Paused = true }, false},
		"being deleted":  {func(sb *v1alpha1.Sandbox) { sb.DeletionTimestamp = new(metav1.Now()) }, false},
		"not ready":      {func(sb *v1alpha1.Sandbox) { sb.Status.Conditions = nil }, false},
		"not running":    {func(sb *v1alpha1.Sandbox) { sb.Status.Phase = v1alpha1.SandboxPaused }, false},
	} {
		rt, setup := runtimetest.Start(t).Next(), newSetup(t, runtime.Options{})
		queued := claimed(rt)
		queued.ResourceVersion = "10"
		setup.Sandbox = func(context.Context, string, string) (*v1alpha1.Sandbox, error) {
			now := queued.DeepCopy()
			now.ResourceVersion = "11"
			test.change(now)
			return now, nil
		}
		err := setsUp(t.Context(), setup, envClaim(), queued)
		if (err == nil) != test.called || (len(rt.Calls()) > 0) != test.called {
			t.Errorf("%s: got %v, %d calls", name, err, len(rt.Calls()))
		}
	}
}

func claimed(rt *runtimetest.Runtime) *v1alpha1.Sandbox {
	sb := boundWith("sandbox-uid", "1")
	sb.Name = "sb"
	sb.Status.Phase = v1alpha1.SandboxRunning
	sb.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue}}
	sb.Status.PodInfo.PodIP, sb.Status.PodInfo.PodUID = rt.IP, sb.UID // it has no Pod, as simulated sandboxes
	return sb
}

func envClaim() *v1alpha1.SandboxClaim {
	claim := sealedClaim()
	claim.Spec.DynamicVolumesMount = nil
	return claim
}

func TestSetUpDeliversTheEnvironmentAndSetsTheToken(t *testing.T) {
	rt, setup := runtimetest.Start(t).Next(), newSetup(t, runtime.Options{})
	for range 2 { // as after a crash
		if err := setsUp(t.Context(), setup, envClaim(), claimed(rt)); err != nil {
			t.Fatal(err)
		}
	}
	if rt.Env()["PASSWORD"] != "hunter2" {
		t.Errorf("the environment is %v", rt.Env())
	}
	if want := tokenOf(t, setup.Keyring, "0195-claim", "sandbox-uid"); rt.Token() != want {
		t.Errorf("the token is %s, want %s", rt.Token(), want)
	}
}

// TestASetupThatIsSkippedSendsNoVariables: such a claim has only the token of the pool set again.
func TestASetupThatIsSkippedSendsNoVariables(t *testing.T) {
	rt, setup, claim, sb := runtimetest.Start(t).Next(), newSetup(t, runtime.Options{}), envClaim(), (*v1alpha1.Sandbox)(nil)
	claim.Spec.SkipInitRuntime, sb = true, claimed(rt)
	sb.Annotations[v1alpha1.AnnotationRuntimeTokenID] = "1/pod.0"
	if err := setsUp(t.Context(), setup, claim, sb); err != nil || rt.Token() != tokenIn(t, sb) || len(rt.Env()) != 0 {
		t.Errorf("got %v, token %q, environment %v", err, rt.Token(), rt.Env())
	}
}

func TestARuntimeWithAForeignTokenFailsForGood(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	rt.SetToken("somebody-elses")
	err := setsUp(t.Context(), newSetup(t, runtime.Options{}), envClaim(), claimed(rt))
	failed := setupError(t, err)
	if failed.Hopeless || failed.Condition != v1alpha1.SandboxConditionRuntimeInitialized || failed.Reason != v1alpha1.ReasonRuntimeInitFailed {
		t.Errorf("got %+v", failed)
	}
}

func TestAURLOfAnotherAddressIsNotCalled(t *testing.T) {
	fleet := runtimetest.Start(t)
	own, foreign := fleet.Next(), fleet.Next()
	for _, key := range []string{v1alpha1.AnnotationRuntimeURL, v1alpha1.AnnotationE2BEnvdURL} {
		sb := claimed(own)
		sb.Annotations[key] = foreign.URL()
		failed := setupError(t, setsUp(t.Context(), newSetup(t, runtime.Options{}), envClaim(), sb))
		if failed.Hopeless || !strings.Contains(failed.Message, "own pod IP") {
			t.Errorf("%s: got %+v", key, failed)
		}
	}
	if len(foreign.Calls())+len(own.Calls()) != 0 {
		t.Error("a runtime was called")
	}
}

func TestTargetOf(t *testing.T) {
	template := func(content string) *apiruntime.RawExtension { return &apiruntime.RawExtension{Raw: []byte(content)} }
	withPort := template(`{"metadata":{"annotations":{"agents.kruise.io/runtime-tls-port":"49984"}}}`)
	for name, test := range map[string]struct {
		annotations map[string]string
		template    *apiruntime.RawExtension
		want        runtime.Target
	}{
		"nothing": {want: runtime.Target{Namespace: "team-a", PodIP: "10.0.0.1"}},
		"runtime-url goes first": {
			annotations: map[string]string{v1alpha1.AnnotationRuntimeURL: "http://10.0.0.1:1", v1alpha1.AnnotationE2BEnvdURL: "http://10.0.0.1:2"},
			want:        runtime.Target{Namespace: "team-a", PodIP: "10.0.0.1", URL: "http://10.0.0.1:1"},
		},
		"envd-url": {
			annotations: map[string]string{v1alpha1.AnnotationE2BEnvdURL: "http://10.0.0.1:2"},
			want:        runtime.Target{Namespace: "team-a", PodIP: "10.0.0.1", URL: "http://10.0.0.1:2"},
		},
		"TLS port of the pod template": {template: withPort, want: runtime.Target{Namespace: "team-a", PodIP: "10.0.0.1", TLSPort: "49984"}},
		"TLS port of the sandbox": {
			template: withPort, annotations: map[string]string{v1alpha1.AnnotationRuntimeTLSPort: "50000"},
			want: runtime.Target{Namespace: "team-a", PodIP: "10.0.0.1", TLSPort: "50000"},
		},
	} {
		sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Annotations: test.annotations}}
		sb.Spec.Template, sb.Status.PodInfo.PodIP = test.template, "10.0.0.1"
		if got := agentruntime.TargetOf(sb); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}

func TestTLSWithoutCertificatesIsHopeless(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	sb := claimed(rt)
	sb.Annotations[v1alpha1.AnnotationRuntimeTLSPort] = fmt.Sprint(runtimetest.Port)
	failed := setupError(t, setsUp(t.Context(), newSetup(t, runtime.Options{}), envClaim(), sb))
	if !failed.Hopeless || len(rt.Calls()) != 0 {
		t.Errorf("got %+v, %d calls", failed, len(rt.Calls()))
	}
}

func TestCertificatesAreReadAgainWhenTheyChange(t *testing.T) {
	old, renewed := runtimetest.NewPKI(t), runtimetest.NewPKI(t)
	certificates, err := agentruntime.NewCertificates(old.CAFile, old.ClientCertFile, old.ClientKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		certificates.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	setup := newSetup(t, runtime.Options{TLS: certificates.TLS})
	setUp := func(ctx context.Context, fleet *runtimetest.Fleet) error {
		sb := claimed(fleet.Next())
		sb.Annotations[v1alpha1.AnnotationRuntimeTLSPort] = fmt.Sprint(runtimetest.Port)
		return setsUp(ctx, setup, envClaim(), sb)
	}
	if err := setUp(t.Context(), old.StartTLS(t)); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{renewed.CAFile: old.CAFile, renewed.ClientCertFile: old.ClientCertFile, renewed.ClientKeyFile: old.ClientKeyFile} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fleet := renewed.StartTLS(t)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { return setUp(ctx, fleet) })
}

func TestASandboxWithoutAddressIsReadAgain(t *testing.T) {
	rt, setup := runtimetest.Start(t).Next(), newSetup(t, runtime.Options{})
	setup.Sandbox = func(context.Context, string, string) (*v1alpha1.Sandbox, error) { return claimed(rt), nil }
	sb := claimed(rt)
	sb.Status.PodInfo.PodIP = ""
	if err := setsUp(t.Context(), setup, envClaim(), sb); err != nil {
		t.Fatal(err)
	}
	if rt.Inits() != 1 {
		t.Errorf("%d effects", rt.Inits())
	}
}

func TestVolumesNeedACluster(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	failed := setupError(t, setsUp(t.Context(), newSetup(t, runtime.Options{}), sealedClaim(), claimed(rt)))
	if !failed.Hopeless || failed.Reason != v1alpha1.ReasonMountFailed || failed.Condition != v1alpha1.SandboxConditionVolumesMounted ||
		!strings.Contains(failed.Message, "there is no cluster to read PersistentVolumes from") {
		t.Errorf("got %+v", failed)
	}
}

func setupError(t *testing.T, err error) *claims.SetupError {
	t.Helper()
	var failed *claims.SetupError
	if !errors.As(err, &failed) {
		t.Fatalf("got %v", err)
	}
	return failed
}

// TestSetUpWaitsForTheKey: an etcd that cannot be read for a moment does not fail the setup of
// a sandbox whose version of the key was made since it was last read.
func TestSetUpWaitsForTheKey(t *testing.T) {
	client := etcd(t)
	put(t, client, "registry", withVersions(t, 2))
	kv := &failing{KV: client}
	keyring, err := agentruntime.Load(t.Context(), kv, "registry", nil)
	if err != nil {
		t.Fatal(err)
	}
	put(t, client, "registry", withVersions(t, 2, anHour))
	rt, setup := runtimetest.Start(t).Next(), newSetup(t, runtime.Options{})
	setup.Keyring = keyring
	kv.failures.Store(2)
	sb := claimed(rt)
	sb.Annotations[v1alpha1.AnnotationRuntimeKeyVersion] = "2"
	if err := setsUp(t.Context(), setup, envClaim(), sb); err != nil || kv.failures.Load() >= 0 {
		t.Errorf("%v, %d failures left", err, kv.failures.Load())
	}
	sb.Annotations[v1alpha1.AnnotationRuntimeKeyVersion] = "3"
	if err := setsUp(t.Context(), setup, envClaim(), sb); err == nil || !strings.Contains(err.Error(), "is not in the store") {
		t.Errorf("a version that does not exist: %v", err)
	}
}

// failing is an etcd of which some reads fail.
type failing struct {
	clientv3.KV
	failures atomic.Int32
}

func (f *failing) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if f.failures.Add(-1) >= 0 {
		return nil, errors.New("etcd is unavailable")
	}
	return f.KV.Get(ctx, key, opts...)
}
