// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/sandlot-io/sandlot/pkg/runtime"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

var volume = runtime.Volume{
	Name: "data", Driver: "nfs.csi.example.com", PodUID: "pod-uid",
	Request: &csi.NodePublishVolumeRequest{VolumeId: "handle", TargetPath: "/data", VolumeContext: map[string]string{"password": "swordfish"}},
}

// initialized returns a runtime that has the access token.
func initialized(t *testing.T, fleet *runtimetest.Fleet) *runtimetest.Runtime {
	t.Helper()
	rt := fleet.Next()
	rt.SetToken(request.AccessToken)
	return rt
}

func TestMountByProcess(t *testing.T) {
	rt := initialized(t, runtimetest.Start(t))
	if err := runtime.New(patient).Mount(t.Context(), target(rt), request.AccessToken, volume); err != nil {
		t.Fatal(err)
	}
	mounted(t, rt, "pod-uid")
	if call := rt.Calls()[0]; call.Path != "/process.Process/Start" {
		t.Errorf("the path was %s", call.Path)
	}
}

func TestMountByEndpoint(t *testing.T) {
	pki := runtimetest.NewPKI(t)
	rt := initialized(t, pki.StartTLS(t))
	if err := tlsClient(t, pki).Mount(t.Context(), tlsTarget(rt), request.AccessToken, volume); err != nil {
		t.Fatal(err)
	}
	mounted(t, rt, "")
	if call := rt.Calls()[0]; call.Path != "/v1/storage/mounts" {
		t.Errorf("the path was %s", call.Path)
	}
}

func mounted(t *testing.T, rt *runtimetest.Runtime, podUID string) {
	t.Helper()
	mounts := rt.Mounts()
	if len(mounts) != 1 {
		t.Fatalf("%d mounts", len(mounts))
	}
	if got := mounts[0]; got.Driver != volume.Driver || got.PodUID != podUID || !proto.Equal(got.Request, volume.Request) {
		t.Errorf("mounted %+v", got)
	}
}

func tlsClient(t *testing.T, pki *runtimetest.PKI) *runtime.Client {
	return runtime.New(runtime.Options{AttemptTimeout: time.Minute, TLS: func() (*tls.Config, error) { return pki.Client(t), nil }})
}

func tlsTarget(rt *runtimetest.Runtime) runtime.Target {
	at := target(rt)
	at.TLSPort = fmt.Sprint(runtimetest.Port)
	return at
}

// A mount may have had an effect when it fails, so it is tried once.
func TestMountsAreNotRetried(t *testing.T) {
	pki := runtimetest.NewPKI(t)
	plain, secure := runtimetest.Start(t), pki.StartTLS(t)
	for name, action := range map[string]runtimetest.Action{
		"500": runtimetest.Answer(500), "401": runtimetest.Answer(401),
		"dies before": runtimetest.Die(runtimetest.Before), "dies after": runtimetest.Die(runtimetest.After),
	} {
		rt := initialized(t, plain)
		rt.Act(action, 1)
		failedMount(t, name, runtime.New(patient).Mount(t.Context(), target(rt), request.AccessToken, volume))
		other := initialized(t, secure)
		other.Act(action, 1)
		failedMount(t, name, tlsClient(t, pki).Mount(t.Context(), tlsTarget(other), request.AccessToken, volume))
		if len(rt.Calls()) != 1 || len(other.Calls()) != 1 {
			t.Errorf("%s: %d and %d calls", name, len(rt.Calls()), len(other.Calls()))
		}
	}
}

func TestAFailedMountSaysWhatIsMissing(t *testing.T) {
	pki := runtimetest.NewPKI(t)
	plain, secure := runtimetest.Start(t), pki.StartTLS(t)
	mount := func(rt *runtimetest.Runtime) error {
		return runtime.New(patient).Mount(t.Context(), target(rt), request.AccessToken, volume)
	}

	rt := initialized(t, plain)
	rt.SetMountResult(runtimetest.MountResult{NoBinary: true})
	failedMount(t, "no binary", mount(rt), "/mnt/envd/sandbox-runtime-storage is not in the sandbox")
	rt.SetMountResult(runtimetest.MountResult{ExitCode: 127})
	failedMount(t, "no binary for the shell", mount(rt), "/mnt/envd/sandbox-runtime-storage is not in the sandbox")
	rt.SetMountResult(runtimetest.MountResult{ExitCode: 32, Stderr: "denied for SWORDFISH, " + request.AccessToken})
	err := mount(rt)
	failedMount(t, "exit code", err, "/mnt/envd/sandbox-runtime-storage ended with exit code 32")
	if strings.Contains(err.Error(), "denied") {
		t.Errorf("what the process wrote is told: %v", err)
	}
	rt.SetMountResult(runtimetest.MountResult{ExitCode: 1, Stderr: strings.Repeat("x", 100<<10)})
	failedMount(t, "much output", mount(rt), "ended with exit code 1")
	rt.Act(runtimetest.Answer(404), 1)
	failedMount(t, "no processes", mount(rt), "answered 404 to POST /process.Process/Start")

	other := initialized(t, secure)
	other.Act(runtimetest.Answer(404), 1)
	failedMount(t, "no endpoint", tlsClient(t, pki).Mount(t.Context(), tlsTarget(other), request.AccessToken, volume),
		"answered 404 to POST /v1/storage/mounts")
}

// Whatever a runtime sends in place of a stream of events, the call ends.
func TestStreamsThatAreNone(t *testing.T) {
	fleet := runtimetest.Start(t)
	for name, body := range map[string]string{
		"nothing": "", "half an envelope": "\x00\x00", "a huge envelope": "\x00\xff\xff\xff\xff{}", "no JSON": "\x00\x00\x00\x00\x02ab",
		"compressed": "\x01\x00\x00\x00\x02{}", "no end": "\x00\x00\x00\x00\x02{}", "an end without a result": "\x02\x00\x00\x00\x02{}",
		"output without end": strings.Repeat("\x00\x00\x00\x00\x22"+`{"event":{"data":{"stderr":"YWE="}}}`[:34], 60000),
	} {
		rt := initialized(t, fleet)
		rt.Act(runtimetest.Action{Status: http.StatusOK, Body: body}, 1)
		failedMount(t, name, runtime.New(patient).Mount(t.Context(), target(rt), request.AccessToken, volume))
	}
}

// failedMount checks the error of a mount: it names volume and path, has no secrets, and is
// short.
func failedMount(t *testing.T, name string, err error, wants ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", name)
		return
	}
	for _, want := range append(wants, "mounting PersistentVolume data at /data: ") {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, want %q in it", name, err, want)
		}
	}
	noSecrets(t, name, err, []string{"swordfish", request.AccessToken})
	if len(err.Error()) > 600 {
		t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
	}
}
