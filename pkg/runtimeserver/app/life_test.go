// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/sandlot-io/sandlot/pkg/runtime"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/processpb"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// startAs starts the program as another user, by way of a runtime that is root.
func startAs(t *testing.T, user string) *box {
	t.Helper()
	parent := newBox(t)
	port := freePort(t)
	command := script("exec " + filepath.Join(programs, "sandlot-runtime") + " serve --address 127.0.0.1 --port " + port)
	parent.start(t.Context(), t, as(user, command))
	b := connectTo(t, parent.Process, "127.0.0.1:"+port)
	awaitHealth(t, b)
	if status, body := b.do(t, "POST", "/init", `{"accessToken":"`+token+`"}`); status != http.StatusNoContent {
		t.Fatalf("/init: %d %s", status, body)
	}
	b.token = token
	return b
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	return port
}

// Connections that no one uses do not keep others out.
func TestIdleConnections(t *testing.T) {
	b := startBox(t)
	for range 1100 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // idle connections are closed after two
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+"/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Error(resp.Status)
	}
}

func awaitHealth(t *testing.T, b *box) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+"/health", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

// When the program ends, whatever it has started ends, also what hides in a session of its own.
func TestChildrenEndWithIt(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, b *box){
		"stopped": func(t *testing.T, b *box) { b.Stop(t) },
		"killed":  func(_ *testing.T, b *box) { b.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			dir := t.TempDir()
			p := b.start(t.Context(), t, as("", script("setsid sh -c 'trap \"\" TERM; echo $$ >"+dir+"/hidden; while :; do sleep 1; done' & exec sleep 600")))
			var hidden int
			expect.Eventually(t.Context(), t, func(context.Context) error {
				text, err := os.ReadFile(dir + "/hidden")
				if err != nil {
					return err
				}
				hidden, err = strconv.Atoi(strings.TrimSpace(string(text)))
				return err
			})
			t.Cleanup(func() { _ = syscall.Kill(hidden, syscall.SIGKILL) })
			end(t, b)
			eventuallyGone(t, int(p.pid))
			if name == "stopped" { // the kernel ends only children when the program has no time to do so
				eventuallyGone(t, hidden)
			}
		})
	}
}

// Output that a process outside has open does not keep the program from its end.
func TestOutputHeldOutside(t *testing.T) {
	b := newBox(t)
	p := b.start(t.Context(), t, as("", script("exec sleep 600")))
	held, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", p.pid), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	b.Stop(t)
	eventuallyGone(t, int(p.pid))
}

// A process that the program may not signal does not keep it from its end either, and requests
// to signal it fail.
func TestProcessThatCannotBeKilled(t *testing.T) {
	if !needRoot(t) {
		return
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Log("NOT TESTED: this test needs setpriv, which takes capabilities")
		return
	}
	parent, port := newBox(t), freePort(t)
	server := parent.start(t.Context(), t, as("", script("exec setpriv --bounding-set -kill "+filepath.Join(programs, "sandlot-runtime")+" serve --address 127.0.0.1 --port "+port)))
	b := connectTo(t, parent.Process, "127.0.0.1:"+port)
	awaitHealth(t, b)
	if status, body := b.do(t, "POST", "/init", `{"accessToken":"`+token+`"}`); status != http.StatusNoContent {
		t.Fatalf("/init: %d %s", status, body)
	}
	b.token = token
	p := b.start(t.Context(), t, as(other, script("exec sleep 600")))
	_, err := b.process.SendSignal(t.Context(), as("", &processpb.SendSignalRequest{Process: selector(p.pid), Signal: processpb.Signal_SIGNAL_SIGKILL}))
	wantCode(t, err, connect.CodePermissionDenied, "not permitted")
	if err := syscall.Kill(int(server.pid), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if e := server.wait(t); e.GetExitCode() != 0 {
		t.Errorf("%s %s", e.GetStatus(), e.stderr)
	}
	_ = syscall.Kill(int(p.pid), syscall.SIGKILL) // it is the parent's now
}

// The end of the command is the end of the program, which passes signals on.
func TestCommand(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		signal os.Signal
		code   int
	}{
		"ends":          {"exit 7", nil, 7},
		"is killed":     {"kill -KILL $$", nil, 137},
		"gets a signal": {`trap "exit 9" USR1; echo waits; while :; do sleep 0.01; done`, syscall.SIGUSR1, 9},
		"is terminated": {`trap "exit 8" TERM; echo waits; while :; do sleep 0.01; done`, syscall.SIGTERM, 8},
	} {
		t.Run(name, func(t *testing.T) {
			p := program.Run(t, programs, "sandlot-runtime", "serve", "--address", "127.0.0.1", "--port", "0", "--", "sh", "-c", c.script)
			if c.signal != nil {
				<-p.Stdout.Seen("waits")
				p.Signal(t, c.signal)
			}
			if code := p.Wait(t); code != c.code {
				t.Errorf("%d", code)
			}
		})
	}
	p := program.Run(t, programs, "sandlot-runtime", "serve", "--address", "127.0.0.1", "--port", "0", "--", "no-such-program")
	if code := p.Wait(t); code != 127 || !strings.Contains(p.Stderr.String(), "no-such-program") {
		t.Errorf("%d %s", code, p.Stderr.String())
	}
}

// An init container installs the program in a folder, and a hook starts it there.
func TestInstallAndStart(t *testing.T) {
	dir := t.TempDir()
	built := filepath.Join(programs, "sandlot-runtime")
	for range 2 { // a container that is restarted does it again
		if out, err := exec.Command(built, "install", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	installed := filepath.Join(dir, "sandlot-runtime")
	if info, err := os.Stat(installed); err != nil || info.Mode().Perm() != 0o755 {
		t.Fatalf("%v, %v", info, err)
	}
	port := freePort(t)
	start := exec.Command(installed, "start", "--address", "127.0.0.1", "--port", port)
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b := connectTo(t, nil, "127.0.0.1:"+port)
	if status, _ := b.do(t, "POST", "/init", `{"accessToken":"`+token+`"}`); status != http.StatusNoContent {
		t.Fatal(status)
	}
	b.token = token
	pid, err := strconv.Atoi(b.sh(t, "", "echo $PPID"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(installed, "start", "--address", "127.0.0.1", "--port", port).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "address already in use") {
		t.Errorf("%v: %s", err, out)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventuallyGone(t, pid)
}

// What a server in the background reports is in the log of the container.
func TestLogOfStart(t *testing.T) {
	if !needRoot(t) {
		return
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	// The shell is the first process of its namespace. When the server has started, a signal makes it report
	// what it does.
	const script = `"$0" start --address 127.0.0.1 --port 0 && kill -s ABRT -- -1; read end`
	shell := exec.CommandContext(t.Context(), "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, filepath.Join(programs, "sandlot-runtime"))
	shell.Stderr = log
	stdin, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(context.Context) error {
		text, err := os.ReadFile(log.Name())
		if err == nil && !strings.Contains(string(text), "SIGABRT") {
			err = fmt.Errorf("the log is %q", text)
		}
		return err
	})
	if err := stdin.Close(); err != nil {
		t.Error(err)
	}
	_ = shell.Wait() // the end of its input is no success of read
}

// The API servers set it up as they do any agent-runtime.
func TestOurClient(t *testing.T) {
	b := startBox(t)
	client := runtime.New(runtime.Options{})
	target := runtime.Target{Namespace: "default", PodIP: "127.0.0.1", URL: b.base}
	volume := runtime.Volume{Name: "pv", Driver: "nfs.csi.k8s.io", Request: &csi.NodePublishVolumeRequest{TargetPath: "/data"}}
	checkClient(t, client, target, volume, "sandbox-runtime-storage is not in the sandbox")
}

func checkClient(t *testing.T, client *runtime.Client, target runtime.Target, volume runtime.Volume, mount string) {
	t.Helper()
	for _, step := range []struct {
		token string
		env   map[string]string
		fails bool
	}{
		{"pool", nil, false},
		{"pool", map[string]string{"A": "b"}, false},
		{"other", nil, true},
		{"pool", nil, false},
	} {
		err := client.Init(t.Context(), target, runtime.InitRequest{AccessToken: step.token, EnvVars: step.env})
		if (err != nil) != step.fails || err != nil && !strings.Contains(err.Error(), "401") {
			t.Errorf("%+v: %v", step, err)
		}
	}
	if err := client.Mount(t.Context(), target, "pool", volume); err == nil || !strings.Contains(err.Error(), mount) {
		t.Errorf("mount: %v", err)
	}
}

// With TLS the token is set by who has a client certificate, and by no one in clear text.
func TestTLS(t *testing.T) {
	pki := runtimetest.NewPKI(t)
	cert, key := pki.ServerFiles(t)
	p := program.Run(t, programs, "sandlot-runtime", "serve", "--address", "127.0.0.1", "--port", "0", "--tls-port", "0",
		"--tls-cert-file", cert, "--tls-key-file", key, "--tls-client-ca-file", pki.CAFile)
	plain := connectTo(t, p, awaitAddress(t, p))
	_, secure, _ := strings.Cut(strings.TrimSpace(p.Stdout.String()), " and 127.0.0.1:")
	if status, body := plain.do(t, "POST", "/init", `{"accessToken":"stranger"}`); status != http.StatusForbidden {
		t.Errorf("in clear text: %d %s", status, body)
	}
	stranger := pki.Client(t)
	stranger.Certificates, stranger.ServerName = nil, runtime.ServerName
	conn, err := tls.Dial("tcp", "127.0.0.1:"+secure, stranger)
	if err == nil {
		_, err = conn.Read(make([]byte, 1)) // TLS 1.3 reports it here
		_ = conn.Close()
	}
	if err == nil {
		t.Error("without a certificate it is served")
	}
	client := runtime.New(runtime.Options{TLS: func() (*tls.Config, error) { return pki.Client(t), nil }})
	target := runtime.Target{Namespace: "default", PodIP: "127.0.0.1", TLSPort: secure}
	volume := runtime.Volume{Name: "pv", Driver: "nfs.csi.k8s.io", Request: &csi.NodePublishVolumeRequest{TargetPath: "/data"}}
	checkClient(t, client, target, volume, "cannot mount volumes")
	plain.token = "pool"
	if got := plain.sh(t, "", "echo $A"); got != "b" {
		t.Errorf("in clear text, with the token: %q", got)
	}
}

// Wrong use is said, with the exit code of wrong use.
func TestUse(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "install FOLDER",
		"frob":                           "unknown command",
		"install":                        "usage",
		"serve --port 99999":             "no port",
		"serve --tls-cert-file x":        "together",
		"start -- sh":                    "takes no command",
		"serve --no-such-flag":           "no-such-flag",
		"start --tls-cert-file x --port": "flag needs an argument",
	} {
		out, err := exec.Command(filepath.Join(programs, "sandlot-runtime"), strings.Fields(text)...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s", text, err, out)
		}
	}
	for _, good := range []string{"version", "help", "serve -h"} {
		if out, err := exec.Command(filepath.Join(programs, "sandlot-runtime"), strings.Fields(good)...).CombinedOutput(); err != nil || len(out) == 0 {
			t.Error(fmt.Errorf("%s: %w: %s", good, err, out))
		}
	}
}
