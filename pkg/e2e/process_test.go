// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// failed requires that a program ends by itself with an error, that the last it
// says is one line about it with all of wants, and that it says little else.
func failed(t *testing.T, p *program.Process, wants ...string) {
	t.Helper()
	if code := p.Wait(t); code != 1 {
		t.Errorf("%s ended with %d, want 1", p.Name, code)
	}
	said := strings.TrimSpace(p.Stderr.String())
	last := said[strings.LastIndex(said, "\n")+1:]
	if !strings.HasPrefix(last, "Error: ") {
		t.Errorf("the last line is no error:\n%s", said)
	}
	for _, want := range wants {
		if !strings.Contains(last, want) {
			t.Errorf("the error does not say %q:\n%s", want, last)
		}
	}
	for _, noise := range []string{"panic", "goroutine ", "Usage:"} {
		if strings.Contains(said, noise) {
			t.Errorf("there is %q in:\n%s", noise, said)
		}
	}
	if p.Name == "sandlot" && strings.Contains(said, "\n") {
		t.Errorf("the error is not alone:\n%s", said)
	}
	if strings.Contains(p.Stdout.String(), "ready") {
		t.Errorf("it said to be ready:\n%s", p.Stdout.String())
	}
}

// tree returns the contents of all files below a folder.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		files[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func writeFile(t *testing.T, content string, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestStartFails starts what cannot run. It has to end at once, say why in one
// line, and leave alone what is not its own.
func TestStartFails(t *testing.T) {
	t.Parallel()
	up := func(t *testing.T, args ...string) *program.Process {
		t.Helper()
		return program.Run(t, programs, "sandlot", append([]string{"up"}, args...)...)
	}
	t.Run("foreign data folder", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		writeFile(t, "dear diary", dir, "diary.txt")
		before := tree(t, dir)
		failed(t, up(t, "--data-dir", dir, "--secure-port", "0"), dir, `"diary.txt"`, "not a data folder of this version of Sandlot")
		if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
			t.Errorf("the folder was changed:\n%s", diff)
		}
	})
	t.Run("data of another version", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		writeFile(t, "sandlot data folder, format 99\n", dir, ".sandlot")
		failed(t, up(t, "--data-dir", dir, "--secure-port", "0"), dir, "format 99")
	})
	t.Run("a file for a folder", func(t *testing.T) {
		t.Parallel()
		file := writeFile(t, "x", t.TempDir(), "file")
		failed(t, up(t, "--data-dir", file, "--secure-port", "0"), file, "not a directory")
		failed(t, up(t, "--data-dir", filepath.Join(file, "below"), "--secure-port", "0"), file, "not a directory")
	})
	t.Run("a folder without permission", func(t *testing.T) {
		t.Parallel()
		if os.Getuid() == 0 {
			t.Skip("root may write everywhere")
		}
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		failed(t, up(t, "--data-dir", dir, "--secure-port", "0"), dir, "permission denied")
		failed(t, up(t, "--data-dir", filepath.Join(dir, "below"), "--secure-port", "0"), dir, "permission denied")
	})
	t.Run("a folder that cannot be", func(t *testing.T) {
		t.Parallel()
		const dir = "/proc/self/nothing"
		if _, err := os.Stat("/proc/self"); err != nil {
			t.Skip(err)
		}
		failed(t, up(t, "--data-dir", dir, "--secure-port", "0"), dir)
	})
	t.Run("port in use", func(t *testing.T) {
		t.Parallel()
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		failed(t, up(t, "--data-dir", t.TempDir(), "--secure-port", port), "127.0.0.1:"+port, "address already in use")
	})
	t.Run("an address of another machine", func(t *testing.T) {
		t.Parallel()
		failed(t, up(t, "--data-dir", t.TempDir(), "--secure-port", "0", "--bind-address", "192.0.2.1"), "192.0.2.1")
	})
	t.Run("kubeconfig", func(t *testing.T) {
		t.Parallel()
		file := writeFile(t, "not: [a kubeconfig", t.TempDir(), "config")
		failed(t, up(t, "--data-dir", t.TempDir(), "--secure-port", "0", "--kubeconfig", file), "kubeconfig", file)
		if content, err := os.ReadFile(file); err != nil || string(content) != "not: [a kubeconfig" {
			t.Errorf("the file was changed: %q %v", content, err)
		}
		missing := filepath.Join(file, "below")
		failed(t, up(t, "--data-dir", t.TempDir(), "--secure-port", "0", "--kubeconfig", missing), "kubeconfig", missing)
	})
	t.Run("options", func(t *testing.T) {
		t.Parallel()
		for want, args := range map[string][]string{
			"--secure-port 70000":          {"up", "--secure-port", "70000"},
			"--secure-port -1":             {"up", "--secure-port", "-1"},
			"--simulated-start-delay":      {"up", "--simulated-start-delay", "-1s"},
			"--sync-window":                {"up", "--sync-window", "5m"},
			`"soon"`:                       {"up", "--sync-window", "soon"},
			"--frob":                       {"up", "--frob"},
			`"frob"`:                       {"up", "frob"},
			`unknown command "down"`:       {"down"},
			`invalid argument "localhost"`: {"up", "--bind-address", "localhost"},
		} {
			dir := filepath.Join(t.TempDir(), "data")
			if args[0] == "up" {
				args = append(args, "--data-dir", dir)
			}
			failed(t, program.Run(t, programs, "sandlot", args...), want)
		}
	})
}

// TestDamagedData damages the data of a server that was stopped. A server that
// starts on it must not have lost anything; one that does not says so.
func TestDamagedData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServer(t, dir)
	if _, err := s.Client.AgentsV1alpha1().SandboxSets("default").Create(t.Context(), builders.Set("pool", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, s.Client.AgentsV1alpha1(), "default", "pool", 1)
	s.Stop(t)
	good := tree(t, dir)

	garbage := strings.Repeat("garbage!", 8192)
	for name, damage := range map[string]struct{ pattern, content string }{
		"garbage in the log":      {"*.wal", garbage},
		"empty log":               {"*.wal", ""},
		"garbage in the database": {"db", garbage},
		"short database":          {"db", "garbage"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			copied, damaged := t.TempDir(), 0
			for path, content := range good {
				relative, err := filepath.Rel(dir, path)
				if err != nil {
					t.Fatal(err)
				}
				if hit, _ := filepath.Match(damage.pattern, filepath.Base(path)); hit {
					content = damage.content
					damaged++
				}
				writeFile(t, content, copied, relative)
			}
			if damaged == 0 {
				t.Fatal("nothing was damaged")
			}
			p := program.Run(t, programs, "sandlot", "up", "--data-dir", copied, "--secure-port", "0")
			failed(t, p, copied, "its data cannot be used, it may be damaged")
		})
	}
	t.Run("certificates are made anew", func(t *testing.T) {
		copied := t.TempDir()
		for path, content := range good {
			relative, err := filepath.Rel(dir, path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(path, ".pem") {
				content = "garbage"
			}
			writeFile(t, content, copied, relative)
		}
		expect.FullPool(t, startServer(t, copied).Client.AgentsV1alpha1(), "default", "pool", 1)
	})
}

// TestSecondServer starts another server on the folder of one that runs.
func TestSecondServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := startServer(t, dir)
	failed(t, program.Run(t, programs, "sandlot", "up", "--data-dir", dir, "--secure-port", "0"), dir, "another process is using the folder")
	expect.FilledPool(t, first.Client.AgentsV1alpha1(), "default", 1) // is not disturbed
	kubeconfig, err := os.ReadFile(first.Kubeconfig)
	if err != nil || !bytes.Contains(kubeconfig, []byte(first.Config.Host)) {
		t.Errorf("the kubeconfig is not the first one's: %v\n%s", err, kubeconfig)
	}
	// A killed server leaves no lock behind.
	first.Kill()
	expect.FullPool(t, startServer(t, dir).Client.AgentsV1alpha1(), "default", "pool", 1)
}

// TestRestart stops a server and starts it again. Everything is as it was.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServer(t, dir)
	expect.FilledPool(t, s.Client.AgentsV1alpha1(), "default", 3)
	if a := s.request(t, http.MethodPost, namespacePath+"default/sandboxtemplates", asYAML, templateYAML); a.code != http.StatusCreated {
		t.Fatal(a.body)
	}
	claim, err := s.Client.AgentsV1alpha1().SandboxClaims("default").Create(t.Context(), builders.Claim("claim", 2), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect.Claimed(t, claim, 2)
	expect.FullPool(t, s.Client.AgentsV1alpha1(), "default", "pool", 3)
	read := func(s *server) map[string]string {
		all := map[string]string{}
		for _, resource := range []string{"sandboxclaims", "sandboxsets", "sandboxtemplates", "sandboxes"} {
			list := s.request(t, http.MethodGet, groupPath+"/"+resource, "", "").body
			_, all[resource], _ = strings.Cut(list, `"items":`) // before it is the version of the list
		}
		return all
	}
	before, user := read(s), string(s.Config.CertData)

	for name, stop := range map[string]func(){
		"SIGTERM": func() { s.Stop(t) },
		"SIGINT": func() {
			s.Signal(t, os.Interrupt)
			if code := s.Wait(t); code != 0 {
				t.Errorf("ended with %d after SIGINT", code)
			}
		},
		"SIGKILL": func() { s.Kill() }, // that of now
	} {
		stop()
		s = startServer(t, dir)
		if diff := cmp.Diff(before, read(s)); diff != "" {
			t.Errorf("not as before %s (-before +after):\n%s", name, diff)
		}
		if string(s.Config.CertData) != user {
			t.Errorf("the user of the kubeconfig is not the one before %s", name)
		}
		expect.FullPool(t, s.Client.AgentsV1alpha1(), "default", "pool", 3)
	}
	if said := s.Stderr.String(); said != "" {
		t.Errorf("a server that did what it should wrote to stderr:\n%s", said)
	}
	if out := s.Stdout.String(); !strings.Contains(out, "kubeconfig: "+s.Kubeconfig+"\n") || !strings.Contains(out, "Sandboxes are simulated") {
		t.Errorf("it does not say what a user has to know:\n%s", out)
	}
}

// TestStopWhileClaimWaits stops the server while the create of a claim waits for
// sandboxes. The call is answered, and the claim continues in the next server.
func TestStopWhileClaimWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServer(t, dir, "--sync-window", "30s")
	expect.FilledPool(t, s.Client.AgentsV1alpha1(), "default", 1)
	grow := func(s *server, maxUnavailable string) {
		t.Helper()
		patch := `{"spec":{"scaleStrategy":{"maxUnavailable":` + maxUnavailable + `}}}`
		if a := s.request(t, http.MethodPatch, namespacePath+"default/sandboxsets/pool", asMergePatch, patch); a.code != http.StatusOK {
			t.Fatal(a.body)
		}
	}
	grow(s, "0") // the pool is not filled up
	claims := s.Client.AgentsV1alpha1().SandboxClaims("default")

	type result struct {
		claim *v1alpha1.SandboxClaim
		err   error
	}
	answered := make(chan result, 1)
	go func() {
		claim := builders.Claim("patient", 2)
		claim.Spec.ClaimTimeout = &metav1.Duration{Duration: 2 * expect.Patience}
		created, err := claims.Create(t.Context(), claim, metav1.CreateOptions{})
		answered <- result{created, err}
	}()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		claim, err := claims.Get(ctx, "patient", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming || claim.Status.ClaimedReplicas != 1 {
			return fmt.Errorf("%+v", claim.Status)
		}
		return nil
	})
	s.Stop(t)
	r := <-answered
	if r.err != nil {
		t.Fatalf("the create was cut off: %v", r.err)
	}
	if r.claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming || len(r.claim.Status.Sandboxes) != 1 {
		t.Errorf("answered with %+v", r.claim.Status)
	}

	s = startServer(t, dir)
	grow(s, "null")
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		claim, err := s.Client.AgentsV1alpha1().SandboxClaims("default").Get(ctx, "patient", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if claim.UID != r.claim.UID {
			t.Fatalf("claim %s is %s now", r.claim.UID, claim.UID)
		}
		if !meta.IsStatusConditionTrue(claim.Status.Conditions, v1alpha1.ClaimConditionCompleted) {
			return fmt.Errorf("%+v", claim.Status)
		}
		expect.Claimed(t, claim, 2)
		return nil
	})
	expect.FullPool(t, s.Client.AgentsV1alpha1(), "default", "pool", 1)
	if n := len(s.sandboxes(t, "default")); n != 3 {
		t.Errorf("%d sandboxes, want two claimed and one in the pool", n)
	}
}

// TestStopWhileStarting stops a server at some moments of its start.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, delay := range []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond} {
		s := launch(t, dir)
		expect.Eventually(t.Context(), t, func(context.Context) error {
			if _, err := os.Stat(filepath.Join(dir, "pki", "admin.pem")); err != nil {
				return err
			}
			return nil
		})
		pause(t.Context(), delay)
		s.Stop(t)
		if said := s.Stderr.String(); strings.Contains(said, "Error:") {
			t.Errorf("stopped after %s it says:\n%s", delay, said)
		}
		if err := os.RemoveAll(filepath.Join(dir, "pki")); err != nil {
			t.Fatal(err)
		}
	}
	expect.FilledPool(t, startServer(t, dir).Client.AgentsV1alpha1(), "default", 1)
}

// TestSecondSignal: who cannot wait for the end sends a second signal.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), "--sync-window", "30s")
	expect.FilledPool(t, s.Client.AgentsV1alpha1(), "default", 0)
	begun := make(chan struct{})
	go func() {
		defer close(begun)
		_, _ = s.Client.AgentsV1alpha1().SandboxClaims("default").Create(t.Context(), builders.Claim("waits", 1), metav1.CreateOptions{})
	}()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		if _, err := s.Client.AgentsV1alpha1().SandboxClaims("default").Get(ctx, "waits", metav1.GetOptions{}); err != nil {
			return err
		}
		return nil
	})
	s.Signal(t, syscall.SIGTERM)
	s.Signal(t, syscall.SIGTERM)
	s.Wait(t)
	<-begun
}

// TestAPIServerAlone runs the API server without the rest.
func TestAPIServerAlone(t *testing.T) {
	t.Parallel()
	freePort := func(t *testing.T) string {
		t.Helper()
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	ca := func(t *testing.T) string {
		t.Helper()
		key := newKey(t)
		cert := issue(t, rootTemplate(), nil, key, key)
		return writeFile(t, encodeCert(t, cert), t.TempDir(), "ca.pem")
	}
	t.Run("unreachable etcd", func(t *testing.T) {
		t.Parallel()
		dead := "http://127.0.0.1:" + freePort(t)
		failed(t, program.Run(t, programs, "sandlot-apiserver", "--etcd-servers", dead, "--client-ca-file", ca(t),
			"--bind-address", "127.0.0.1", "--secure-port", freePort(t)), dead)
	})
	t.Run("no etcd", func(t *testing.T) {
		t.Parallel()
		failed(t, program.Run(t, programs, "sandlot-apiserver", "--client-ca-file", ca(t)), "--etcd-servers", "--embedded-etcd-dir")
	})
	t.Run("no port", func(t *testing.T) {
		t.Parallel()
		failed(t, program.Run(t, programs, "sandlot-apiserver", "--embedded-etcd-dir", t.TempDir(), "--client-ca-file", ca(t), "--secure-port", "0"),
			"--secure-port must not be 0")
	})
	t.Run("foreign data folder", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		writeFile(t, "x", dir, "x")
		failed(t, program.Run(t, programs, "sandlot-apiserver", "--embedded-etcd-dir", dir, "--client-ca-file", ca(t),
			"--bind-address", "127.0.0.1", "--secure-port", freePort(t)), dir, "not a data folder")
	})
	t.Run("no CA", func(t *testing.T) {
		t.Parallel()
		missing := filepath.Join(t.TempDir(), "ca.pem")
		failed(t, program.Run(t, programs, "sandlot-apiserver", "--embedded-etcd-dir", t.TempDir(), "--client-ca-file", missing,
			"--bind-address", "127.0.0.1", "--secure-port", freePort(t)), missing)
		failed(t, program.Run(t, programs, "sandlot-apiserver", "--embedded-etcd-dir", t.TempDir()), "--client-ca-file")
	})
}
