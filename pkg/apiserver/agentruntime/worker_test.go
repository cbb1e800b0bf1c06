// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/runtime"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// box is a sandbox that servers work on.
type box struct {
	mu      sync.Mutex
	sb      *v1alpha1.Sandbox
	servers []*agentruntime.Worker
	// fails is how many more writes get no answer, although they are done.
	fails int
	// away is how many more writes are not done.
	away int
	// missed is how many more reads do not find the sandbox.
	missed int
	// template is that of the pool which the sandbox is in.
	template string
}

// resumed returns a sandbox of a claim whose new pod is ready, with a runtime.
func resumed(t *testing.T, claim *v1alpha1.SandboxClaim, rt *runtimetest.Runtime) *box {
	t.Helper()
	sb := claimed(rt)
	sealed, _, err := newKeyring(t, 1).Seal(claim)
	if err != nil {
		t.Fatal(err)
	}
	sb.Annotations[v1alpha1.AnnotationOwner], sb.Annotations[v1alpha1.AnnotationInitRuntimeRequest] = string(claim.UID), sealed
	if claims.Mounts(claim) {
		sb.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxConditionVolumesMounted, Status: metav1.ConditionTrue}}
	}
	sb.Status.Phase = v1alpha1.SandboxResuming
	claims.BeginSetupAgain(sb, &sb.Status, time.Now())
	return &box{sb: sb}
}

// change is an agentruntime.Change.
func (b *box) change(_ context.Context, _, _ string, change func(*v1alpha1.Sandbox) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away > 0 {
		b.away--
		return errors.New("it is away")
	}
	next := b.sb.DeepCopy()
	if err := change(next); err != nil {
		return err
	}
	b.sb = next
	for _, server := range b.servers {
		server.SandboxChanged(next)
	}
	if b.fails > 0 {
		b.fails--
		return errors.New("no answer")
	}
	return nil
}

// withTemplate is the WithTemplate of a Setup.
func (b *box) withTemplate(_ context.Context, sb *v1alpha1.Sandbox) (*v1alpha1.Sandbox, error) {
	if b.template == "" {
		return nil, errors.New("the template is not there")
	}
	whole := sb.DeepCopy()
	whole.Spec.Template = &apiruntime.RawExtension{Raw: []byte(b.template)}
	return whole, nil
}

// set changes the sandbox as another client does.
func (b *box) set(change func(*v1alpha1.Sandbox)) {
	_ = b.change(context.Background(), "", "", func(sb *v1alpha1.Sandbox) error { change(sb); return nil })
}

// serve adds a server, which stops with the test or by what is returned.
func (b *box) serve(t *testing.T, name string, all ...string) (*agentruntime.Worker, func()) {
	t.Helper()
	setup := newSetup(t, runtime.Options{})
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data", Annotations: map[string]string{v1alpha1.AnnotationMountNamespaces: "*", v1alpha1.AnnotationMountAttributes: "k"}}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "nfs.csi.example.com", VolumeHandle: "handle"}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	setup.Sandbox = func(context.Context, string, string) (*v1alpha1.Sandbox, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.missed > 0 {
			b.missed--
			return nil, nil
		}
		return b.sb, nil
	}
	setup.WithTemplate = b.withTemplate
	setup.Volumes = agentruntime.NewVolumes(fake.NewClientset(pv).CoreV1())
	r := agentruntime.NewWorker(setup, b.change, clock.RealClock{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	stop := func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers = append(b.servers, r)
	r.SandboxesListed([]*v1alpha1.Sandbox{b.sb})
	r.MembersChanged(name, all)
	return r, stop
}

// await waits until a server has written how it went, and returns a condition.
func (b *box) await(t *testing.T, kind string) metav1.Condition {
	t.Helper()
	var c metav1.Condition
	expect.Eventually(t.Context(), t, func(context.Context) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if claims.SetupPending(&b.sb.Status) {
			return errors.New("it is not set up")
		}
		if b.sb.Annotations[v1alpha1.AnnotationMounting] != "" {
			t.Error("the note of who mounts stays")
		}
		if found := meta.FindStatusCondition(b.sb.Status.Conditions, kind); found != nil {
			c = *found
		}
		return nil
	})
	return c
}

const (
	initialized = v1alpha1.SandboxConditionRuntimeInitialized
	mounted     = v1alpha1.SandboxConditionVolumesMounted
)

func TestAResumeInitializesAndMounts(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	b := resumed(t, sealedClaim(), rt)
	b.fails = 1 // the note is written, and the response is lost
	b.serve(t, "a")
	if c := b.await(t, mounted); c.Status != metav1.ConditionTrue {
		t.Errorf("told %+v", c)
	}
	if len(rt.Mounts()) != 1 || rt.Env()["PASSWORD"] != "hunter2" || rt.Token() != tokenOf(t, newKeyring(t, 1), "0195-claim", "sandbox-uid") {
		t.Errorf("mounts %v, environment %v", rt.Mounts(), rt.Env())
	}
}

// A store that is away for long keeps a resume from nothing.
func TestAResumeOutlastsTheStore(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	b := resumed(t, sealedClaim(), rt)
	b.away = 8
	b.serve(t, "a")
	if c := b.await(t, mounted); c.Status != metav1.ConditionTrue || len(rt.Mounts()) != 1 {
		t.Errorf("told %+v, mounted %v", c, rt.Mounts())
	}
}

func TestAResumeTellsWhatFailed(t *testing.T) {
	for name, test := range map[string]struct {
		breaks     func(*runtimetest.Runtime)
		init, said string
	}{
		"the runtime": {func(rt *runtimetest.Runtime) { rt.Act(runtimetest.Answer(http.StatusBadRequest), 9) }, "Failed", "answered 400"},
		"a mount": {func(rt *runtimetest.Runtime) {
			rt.SetMountResult(runtimetest.MountResult{ExitCode: 1, Stderr: "no share"})
		}, "Succeeded", "exit code 1"},
		"another's token": {func(rt *runtimetest.Runtime) { rt.SetToken("other") }, "Failed", "401"},
	} {
		t.Run(name, func(t *testing.T) {
			rt := runtimetest.Start(t).Next()
			test.breaks(rt)
			b := resumed(t, sealedClaim(), rt)
			b.serve(t, "a")
			if c := b.await(t, initialized); c.Reason != test.init {
				t.Errorf("told %+v", c)
			}
			if c := b.await(t, mounted); c.Reason != v1alpha1.ReasonFailed || !strings.Contains(c.Message, test.said) || strings.Contains(c.Message, "hunter2") {
				t.Errorf("told %+v", c)
			}
		})
	}
}

// TestAResumeWaitsForTheRuntime: one that does not answer as many times as one call of /init tries is
// still starting.
func TestAResumeWaitsForTheRuntime(t *testing.T) {
	t.Parallel()
	rt := runtimetest.Start(t).Next()
	rt.Act(runtimetest.Answer(http.StatusServiceUnavailable), 7)
	b := resumed(t, sealedClaim(), rt)
	b.serve(t, "a")
	if c := b.await(t, initialized); c.Status != metav1.ConditionTrue {
		t.Errorf("told %+v", c)
	}
}

// hangs lets the first call of a runtime hang, and reports each that comes.
func hangs(fleet *runtimetest.Fleet, on *runtimetest.Runtime, release <-chan struct{}) <-chan string {
	came := make(chan string, 100)
	var first sync.Once
	fleet.Script(func(rt *runtimetest.Runtime, _ runtimetest.Call) runtimetest.Action {
		came <- rt.IP
		var action runtimetest.Action
		if rt == on {
			first.Do(func() { action = runtimetest.Hang(release) })
		}
		return action
	})
	return came
}

// TestAResumeIsTheWorkOfOneServer: and of another one when that is gone.
func TestAResumeIsTheWorkOfOneServer(t *testing.T) {
	fleet := runtimetest.Start(t)
	rt := fleet.Next()
	b := resumed(t, envClaim(), rt)
	hold := make(chan struct{})
	came := hangs(fleet, rt, hold)
	_, stopFirst := b.serve(t, "a", "a", "b")
	_, stopSecond := b.serve(t, "b", "a", "b")
	<-came
	stopFirst()
	stopSecond()
	if len(came) != 0 {
		t.Error("both servers have called")
	}
	b.serve(t, "c", "c")
	if c := b.await(t, initialized); c.Status != metav1.ConditionTrue {
		t.Errorf("told %+v", c)
	}
	close(hold)
}

// TestVolumesOfAResumeAreMountedOnce: who finds that another server mounts waits for as
// long as that is there.
func TestVolumesOfAResumeAreMountedOnce(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	b := resumed(t, sealedClaim(), rt)
	b.sb.Annotations[v1alpha1.AnnotationMounting] = "gone/sandbox-uid.0"
	r, _ := b.serve(t, "a", "a", "gone")
	r.MembersChanged("a", []string{"a"})
	if c := b.await(t, mounted); c.Reason != v1alpha1.ReasonFailed || !strings.Contains(c.Message, "had begun before") || len(rt.Mounts()) != 0 {
		t.Errorf("told %+v, mounted %v", c, rt.Mounts())
	}
	// The note of another pod does not matter.
	next := resumed(t, sealedClaim(), runtimetest.Start(t).Next())
	next.sb.Annotations[v1alpha1.AnnotationMounting] = "gone/another.0"
	next.serve(t, "a")
	if c := next.await(t, mounted); c.Status != metav1.ConditionTrue {
		t.Errorf("told %+v", c)
	}
}

// TestAResultOfAPodBeforeDoesNotCount: a sandbox that is paused and resumed while its
// runtime is called has another pod, whose runtime is called for itself.
func TestAResultOfAPodBeforeDoesNotCount(t *testing.T) {
	fleet := runtimetest.Start(t)
	before, after := fleet.Next(), fleet.Next()
	b := resumed(t, envClaim(), before)
	hold := make(chan struct{})
	came := hangs(fleet, before, hold)
	b.serve(t, "a")
	<-came
	b.set(func(sb *v1alpha1.Sandbox) {
		sb.Generation += 2
		sb.Status.PodInfo.PodIP = after.IP
		claims.BeginSetupAgain(sb, &sb.Status, time.Now())
	})
	close(hold)
	if c := b.await(t, initialized); c.Status != metav1.ConditionTrue || after.Env()["PASSWORD"] != "hunter2" {
		t.Errorf("told %+v", c)
	}
}
