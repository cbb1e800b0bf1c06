// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/datadir"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

func TestUpKeepsData(t *testing.T) {
	o := testOptions(t)
	first := up(t, o)
	template, err := v1alpha1.RawTemplate(corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "python"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Name: "py"}}
	set.Spec.Replicas = new(int32(2))
	set.Spec.Template = template
	if _, err := first.client.AgentsV1alpha1().SandboxSets("default").Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	first.waitAvailable(t, "py", 2)
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: v1alpha1.SandboxClaimSpec{TemplateName: "py"}}
	claim, err = first.client.AgentsV1alpha1().SandboxClaims("default").Create(t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted || len(claim.Status.Sandboxes) != 1 {
		t.Fatalf("claim is %+v", claim.Status)
	}
	for _, want := range []string{o.Kubeconfig, "https://127.0.0.1:", "simulated"} {
		if !strings.Contains(first.out.String(), want) {
			t.Errorf("the output does not tell %q:\n%s", want, first.out)
		}
	}
	first.stop(t)

	second := up(t, o)
	got, err := second.client.AgentsV1alpha1().SandboxClaims("default").Get(t.Context(), "mine", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.UID != claim.UID || len(got.Status.Sandboxes) != 1 || got.Status.Sandboxes[0].Name != claim.Status.Sandboxes[0].Name {
		t.Errorf("claim was %+v and is %+v", claim.Status, got.Status)
	}
	second.waitAvailable(t, "py", 2)
	second.stop(t)
}

// A claim that waits for sandboxes when the end comes gets its answer.
func TestStopFinishesCallsInFlight(t *testing.T) {
	o := testOptions(t)
	o.SyncWindow = 2 * time.Second
	run := up(t, o)
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Name: "early"}, Spec: v1alpha1.SandboxClaimSpec{
		TemplateName:    "later",
		CreateOnNoStock: new(false),
	}}
	type answer struct {
		claim *v1alpha1.SandboxClaim
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		claim, err := run.client.AgentsV1alpha1().SandboxClaims("default").Create(context.WithoutCancel(t.Context()), claim, metav1.CreateOptions{})
		answers <- answer{claim, err}
	}()
	// It is in flight when it is stored.
	run.eventually(t, func(ctx context.Context) error {
		_, err := run.client.AgentsV1alpha1().SandboxClaims("default").Get(ctx, "early", metav1.GetOptions{})
		return err
	})
	run.stop(t)
	if got := <-answers; got.err != nil || got.claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming {
		t.Errorf("the call in flight got %v, %v", got.claim, got.err)
	}
}

func TestRunFails(t *testing.T) {
	busy, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, port, err := net.SplitHostPort(busy.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	cases := map[string]struct {
		prepare func(t *testing.T, o *Options)
		wantErr string
	}{
		"port in use": {
			prepare: func(t *testing.T, o *Options) { o.SecurePort = atoi(t, port) },
			wantErr: "address already in use",
		},
		"foreign folder": {
			prepare: func(t *testing.T, o *Options) { write(t, filepath.Join(o.DataDir, "x"), "") },
			wantErr: datadir.ErrForeign.Error(),
		},
		"damaged data": {
			prepare: func(t *testing.T, o *Options) {
				up(t, o).stop(t)
				write(t, filepath.Join(o.DataDir, "etcd", "etcd", "member", "snap", "db"), "garbage")
			},
			wantErr: "may be damaged",
		},
		"kubeconfig that is something else": {
			prepare: func(t *testing.T, o *Options) {
				o.Kubeconfig = filepath.Join(t.TempDir(), "notes")
				write(t, o.Kubeconfig, "not: [a kubeconfig")
			},
			wantErr: "kubeconfig",
		},
		"sync window too long": {
			prepare: func(_ *testing.T, o *Options) { o.SyncWindow = time.Minute },
			wantErr: "--sync-window",
		},
		"claims that cannot wait": {
			prepare: func(t *testing.T, o *Options) {
				flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
				o.AddFlags(flags)
				if err := flags.Parse([]string{"--max-claim-timeout=59s"}); err != nil {
					t.Error(err)
				}
			},
			wantErr: "--max-claim-timeout must be at least",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t)
			tc.prepare(t, o)
			var out buffer
			err := Run(t.Context(), o, &out)
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("got %v, want an error with %q", err, tc.wantErr)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %v", err)
			}
			if strings.Contains(out.String(), "ready\n") {
				t.Errorf("it said that it was ready:\n%s", &out)
			}
		})
	}
}

// TestProgramThatIsMissing is noticed before anything runs.
func TestProgramThatIsMissing(t *testing.T) {
	o := testOptions(t)
	o.Sandboxes, o.RuntimeProgram = SandboxesProcesses, filepath.Join(t.TempDir(), "none")
	var out buffer
	if err := Run(t.Context(), o, &out); err == nil || !strings.Contains(err.Error(), "--runtime-program") || out.String() != "" {
		t.Errorf("error is %v, after it wrote %q", err, &out)
	}
}

func TestFolderIsUsedOnce(t *testing.T) {
	o := testOptions(t)
	run := up(t, o)
	if err := Run(t.Context(), o, &buffer{}); !errors.Is(err, datadir.ErrLocked) {
		t.Errorf("second run on the folder: %v, want ErrLocked", err)
	}
	run.stop(t)
}

func TestOptions(t *testing.T) {
	cases := map[string]struct {
		change  func(o *Options)
		wantErr string
	}{
		"defaults":       {change: func(*Options) {}},
		"no folder":      {change: func(o *Options) { o.DataDir = "" }, wantErr: "--data-dir"},
		"port":           {change: func(o *Options) { o.SecurePort = 70000 }, wantErr: "--secure-port"},
		"negative delay": {change: func(o *Options) { o.SimulatedStartDelay = -1 }, wantErr: "--simulated-start-delay"},
		"no processes":   {change: func(o *Options) { o.Sandboxes, o.MaxProcesses = SandboxesProcesses, 0 }, wantErr: "--max-processes"},
		"processes for other machines": {change: func(o *Options) {
			o.Sandboxes, o.BindAddress = SandboxesProcesses, net.IPv4zero
		}, wantErr: "--bind-address must be a loopback"},
		"processes for other machines by E2B": {change: func(o *Options) {
			o.Sandboxes, o.E2BAddress = SandboxesProcesses, ":3000"
		}, wantErr: "--e2b-address must be a loopback"},
		"processes for this machine": {change: func(o *Options) {
			if runtime.GOOS == "linux" {
				o.Sandboxes, o.E2BAddress = SandboxesProcesses, "localhost:3000"
			}
		}},
		"simulated for other machines": {change: func(o *Options) { o.BindAddress, o.E2BAddress = net.IPv4zero, ":3000" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_DATA_HOME", "/data")
			o := NewOptions()
			tc.change(o)
			if err := o.Complete(); err != nil {
				t.Fatal(err)
			}
			err := o.Validate()
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("got %v, want %q", err, tc.wantErr)
			}
			if err == nil && o.Kubeconfig != "/data/sandlot/kubeconfig" {
				t.Errorf("kubeconfig %q", o.Kubeconfig)
			}
		})
	}
}

// running is a run in the background.
type running struct {
	client versioned.Interface
	out    *buffer
	cancel context.CancelFunc
	ended  chan error
}

func testOptions(t *testing.T) *Options {
	t.Helper()
	o := NewOptions()
	o.DataDir = t.TempDir()
	o.SecurePort = 0
	o.SimulatedStartDelay = 10 * time.Millisecond
	if err := o.Complete(); err != nil {
		t.Fatal(err)
	}
	return o
}

// up starts a run and waits until it says that it is ready.
func up(t *testing.T, o *Options) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{out: &buffer{}, cancel: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- Run(ctx, o, r.out) }()
	r.eventually(t, func(context.Context) error {
		if said := r.out.String(); !strings.HasSuffix(said, "\nready\n") {
			return fmt.Errorf("not ready: %q", said)
		}
		return nil
	})
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	if r.client, err = versioned.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		t.Errorf("the run ended with %v", err)
	}
}

func (r *running) waitAvailable(t *testing.T, set string, want int32) {
	t.Helper()
	r.eventually(t, func(ctx context.Context) error {
		got, err := r.client.AgentsV1alpha1().SandboxSets("default").Get(ctx, set, metav1.GetOptions{})
		if err == nil && got.Status.AvailableReplicas != want {
			err = fmt.Errorf("set %s is %+v", set, got.Status)
		}
		return err
	})
}

// eventually is expect.Eventually for as long as the run continues.
func (r *running) eventually(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		select {
		case err := <-r.ended:
			t.Fatalf("the run ended: %v", err)
		default:
		}
		return check(ctx)
	})
}

// buffer is for a writer and a reader at the same time.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
