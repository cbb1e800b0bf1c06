// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take before a test gives up on it.
const patience = 3 * time.Minute

// unpack puts an image for this machine into a folder.
func unpack(t *testing.T, name string) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, i := range built(t).images(t) {
		if i.name != "registry.example/team/"+name+":t1" || i.platform != "linux/"+runtime.GOARCH {
			continue
		}
		for _, layer := range i.layers {
			for header, content := range readTar(t, bytes.NewReader(layer)) {
				extract(t, root, header, content)
			}
		}
		return root
	}
	t.Skipf("there is no image for %s", runtime.GOARCH)
	return ""
}

func extract(t *testing.T, root string, header *tar.Header, content []byte) {
	t.Helper()
	name := filepath.Join(root, header.Name)
	var err error
	if header.Typeflag == tar.TypeDir {
		err = os.MkdirAll(name, 0o755)
	} else {
		err = os.WriteFile(name, content, 0o600)
	}
	if err == nil {
		err = os.Chmod(name, header.FileInfo().Mode())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// command runs a program of an unpacked image. Where the test is root, it sees
// nothing but the image, and is the user that the image names.
func command(ctx context.Context, t *testing.T, program, root string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Getuid() != 0 {
		return exec.CommandContext(ctx, filepath.Join(root, program), args...)
	}
	// What leads to the folder is private to root, and no matter to the program.
	for dir := root; dir != filepath.Dir(dir) && dir != filepath.Clean(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(ctx, "/"+program, args...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	return cmd
}

func TestProgramsKnowTheirVersion(t *testing.T) {
	for program, arg := range map[string]string{
		"sandlot": "version", "sandlot-apiserver": "--version", "sandlot-controller-manager": "--version", "sandlot-gateway": "--version",
		"sandlot-runtime": "version",
	} {
		out, err := command(t.Context(), t, program, unpack(t, program), arg).CombinedOutput()
		if err != nil || !strings.Contains(string(out), testVersion) {
			t.Errorf("%s %s: %v\n%s", program, arg, err, out)
		}
	}
}

// The image of etcd is a member that etcdctl and etcdutl in it know.
func TestEtcd(t *testing.T) {
	root := unpack(t, "sandlot-etcd")
	data := "/tmp/data"
	if os.Getuid() != 0 {
		data = filepath.Join(root, data)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	socket := "unix://localhost:" + strconv.Itoa(os.Getpid()) // a socket in its folder, where no port is taken
	cmd := command(ctx, t, "etcd", root, "--data-dir", data,
		"--listen-client-urls", socket+"0", "--advertise-client-urls", socket+"0",
		"--listen-peer-urls", socket+"1", "--initial-advertise-peer-urls", socket+"1", "--initial-cluster", "default="+socket+"1")
	cmd.Dir = filepath.Dir(data)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctl := func(program string, args ...string) string {
		one := command(ctx, t, program, root, args...)
		one.Dir = cmd.Dir
		out, err := one.CombinedOutput()
		if err != nil {
			_ = cmd.Process.Kill()
			t.Fatalf("%s %v: %v\n%s\n%v\n%s", program, args, err, out, cmd.Wait(), &stderr)
		}
		return string(out)
	}
	// It waits for the server to be there.
	endpoint := []string{"--endpoints", socket + "0", "--command-timeout", "2m", "--dial-timeout", "2m"}
	ctl("etcdctl", append(endpoint, "put", "key", "value")...)
	if got := ctl("etcdctl", append(endpoint, "get", "key", "--print-value-only")...); got != "value\n" {
		t.Errorf("key is %q", got)
	}
	ctl("etcdctl", append(endpoint, "defrag")...)
	ctl("etcdctl", append(endpoint, "snapshot", "save", filepath.Join(cmd.Dir, "snapshot"))...)
	// The put was the second revision; a store begins with the first.
	if got := ctl("etcdutl", "snapshot", "status", "--write-out", "json", filepath.Join(cmd.Dir, "snapshot")); !strings.Contains(got, `"revision":2,`) {
		t.Errorf("the snapshot is %s", got)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it ends itself by the signal
}

// sandlot up needs nothing but what is in the image.
func TestUp(t *testing.T) {
	root := unpack(t, "sandlot")
	data := "/tmp/data"
	if os.Getuid() != 0 {
		data = filepath.Join(root, data)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := command(ctx, t, "sandlot", root, "up", "--data-dir", data, "--secure-port", "0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	server, ready := "", false
	lines := bufio.NewScanner(stdout)
	for !ready && lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "server:"); ok {
			server = strings.TrimSpace(url)
		}
		ready = lines.Text() == "ready"
	}
	if !ready {
		t.Fatalf("it never was ready: %v\n%s", cmd.Wait(), &stderr)
	}
	// Its CA is its own; who it is does not matter here.
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		t.Errorf("%s/readyz: %s\n%s", server, response.Status, body)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // until it closes its end
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v\n%s", err, &stderr)
	}
}
