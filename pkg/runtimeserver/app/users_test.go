// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/sandlot-io/sandlot/pkg/runtimeserver/filesystempb"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// other is an account that every system has.
const other = "nobody"

// Requests of another user run, read and write as that user.
func TestUsers(t *testing.T) {
	if !needRoot(t) {
		return
	}
	b := newBox(t)
	dir := openDir(t)
	if err := os.WriteFile(dir+"/mine", []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := b.sh(t, other, "id -un; grep CapEff /proc/self/status; id -G"); !strings.HasPrefix(got, other+"\nCapEff:\t0000000000000000\n") || strings.Contains(got+" ", " 0 ") {
		t.Errorf("%q", got)
	}
	b.sh(t, other, "mkdir -p "+dir+"/theirs/full/deep")
	if got := b.sh(t, "", "id -u"); got != "0" {
		t.Errorf("without a name: %q", got)
	}
	for _, step := range []struct {
		method, path string
		status       int
	}{
		{"GET", dir + "/mine", 403},
		{"POST", dir + "/mine", 403},
		{"POST", dir + "/theirs/new/a", 200},
		{"POST", "/etc/theirs", 403},
	} {
		if status, body := b.do(t, step.method, "/files?username="+other+"&path="+step.path, "x", "Content-Type: application/octet-stream"); status != step.status {
			t.Errorf("%s %s: %d %s", step.method, step.path, status, body)
		}
	}
	for _, path := range []string{"/theirs/new", "/theirs/new/a"} {
		if got := b.sh(t, "", "stat -c %U "+dir+path); got != other {
			t.Errorf("%s is %s's", path, got)
		}
	}
	_, err := b.files.Remove(t.Context(), as(other, &filesystempb.RemoveRequest{Path: dir + "/mine"}))
	wantCode(t, err, connect.CodePermissionDenied, dir+"/mine")
	if _, err := b.files.Remove(t.Context(), as(other, &filesystempb.RemoveRequest{Path: dir + "/theirs/full"})); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir + "/theirs/full"); !os.IsNotExist(err) {
		t.Errorf("what was removed is there: %v", err)
	}
	_, err = b.files.Move(t.Context(), as(other, &filesystempb.MoveRequest{Source: dir + "/mine", Destination: dir + "/theirs/x"}))
	wantCode(t, err, connect.CodePermissionDenied, "")
	_, err = b.files.MakeDir(t.Context(), as(other, &filesystempb.MakeDirRequest{Path: dir + "/new"}))
	wantCode(t, err, connect.CodePermissionDenied, "")
	if err := os.Mkdir(dir+"/closed", 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = b.files.ListDir(t.Context(), as(other, &filesystempb.ListDirRequest{Path: dir + "/closed"}))
	wantCode(t, err, connect.CodePermissionDenied, "")
	_, err = b.files.CreateWatcher(t.Context(), as(other, &filesystempb.CreateWatcherRequest{Path: dir + "/closed"}))
	wantCode(t, err, connect.CodePermissionDenied, "")
	_, err = b.files.Stat(t.Context(), as("no-such-user", &filesystempb.StatRequest{Path: "/"}))
	wantCode(t, err, connect.CodeUnauthenticated, "no-such-user")
	// What was done for others changed nothing for us.
	if got := b.sh(t, "", "id -u; cat "+dir+"/mine"); got != "0\nroot's" {
		t.Errorf("%q", got)
	}
}

// openDir is a folder that all can enter, with a folder theirs in it of the other user.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandlot-runtime-test-") //nolint:usetesting // no other user can enter T.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/theirs", 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("chown", other, dir+"/theirs").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// A watch of another user sees the new folders that this user can see.
func TestWatchAsAnother(t *testing.T) {
	if !needRoot(t) {
		return
	}
	b := newBox(t)
	dir := openDir(t) + "/theirs"
	stream, err := b.files.WatchDir(t.Context(), as(other, &filesystempb.WatchDirRequest{Path: dir, Recursive: true, IncludeEntry: true}))
	if err != nil || !stream.Receive() {
		t.Fatalf("%v %v", err, stream.Err())
	}
	defer stream.Close()
	b.sh(t, "", "cd "+dir+"; mkdir -m 700 closed; mkdir open; sleep 0.3; touch closed/hidden open/seen")
	for {
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		switch e := stream.Msg().GetFilesystem(); e.GetName() {
		case "closed/hidden":
			t.Error("it sees into a folder that is root's alone")
		case "open/seen":
			if e.GetEntry().GetOwner() != "root" {
				t.Errorf("%v", e)
			}
			return
		}
	}
}

// However a user exchanges files for links while others upload there, nothing of root's is
// written or read as that user.
func TestSymlinkRace(t *testing.T) {
	if !needRoot(t) {
		return
	}
	b := newBox(t)
	dir := openDir(t)
	mine := dir + "/mine"
	if err := os.WriteFile(mine, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(dir, "theirs", "file")
	stop := make(chan struct{})
	var racing sync.WaitGroup
	racing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.Symlink(mine, target+".link")
				_ = os.Rename(target+".link", target)
				_ = os.Remove(target)
			}
		}
	})
	for range 300 {
		for _, method := range []string{"POST", "GET"} {
			if status, body := b.do(t, method, "/files?username="+other+"&path="+target, "theirs", "Content-Type: application/octet-stream"); strings.Contains(body, "root's") {
				t.Errorf("%s: %d %s", method, status, body)
			}
		}
	}
	close(stop)
	racing.Wait()
	if text, err := os.ReadFile(mine); err != nil || string(text) != "root's" {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := os.Stat(mine); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("%v, %v", info, err)
	}
}

// A runtime that is not root acts as its own user only, and keeps its memory from others
// of that user.
func TestNotRoot(t *testing.T) {
	if !needRoot(t) {
		return
	}
	b := startAs(t, other)
	if got := b.sh(t, "", "id -un"); got != other {
		t.Errorf("%q", got)
	}
	if got := b.sh(t, other, "id -un"); got != other {
		t.Errorf("by name: %q", got)
	}
	_, err := b.files.Stat(t.Context(), as("root", &filesystempb.StatRequest{Path: "/"}))
	wantCode(t, err, connect.CodePermissionDenied, "not as root")
	for _, file := range []string{"environ", "mem", "maps"} {
		e := b.start(t.Context(), t, as("", script("head -c 1 /proc/$PPID/"+file))).wait(t)
		if e.GetExitCode() == 0 || !strings.Contains(e.stderr, "Permission denied") {
			t.Errorf("%s: %q, %q", file, e.stdout, e.stderr)
		}
	}
}

// TestSameUser: with --same-user, other users of this machine are not served, so they cannot set the token.
func TestSameUser(t *testing.T) {
	p := program.Run(t, programs, "sandlot-runtime", "serve", "--address", "127.0.0.1", "--port", "0", "--same-user")
	b := connectTo(t, p, awaitAddress(t, p))
	if status, body := b.do(t, "GET", "/health", ""); status != 204 {
		t.Errorf("the same user: %d %s", status, body)
	}
	if !needRoot(t) {
		return
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(b.base, "http://"), ":")
	request := fmt.Sprintf(`exec bash -c 'trap "" PIPE; exec 3<>/dev/tcp/%s/%s; printf "GET /health HTTP/1.0\r\n\r\n" >&3; head -1 <&3; true' 2>&1`, host, port)
	caller := newBox(t)
	if answer := caller.sh(t, "", request); !strings.Contains(answer, "204") {
		t.Errorf("the same user, by a command: %q", answer)
	}
	if answer := caller.sh(t, other, request); strings.Contains(answer, "HTTP/") {
		t.Errorf("%s is served: %q", other, answer)
	}
}
