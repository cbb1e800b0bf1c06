// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sandlot-io/sandlot/pkg/runtimeserver/filesystempb"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

func TestFiles(t *testing.T) {
	b := newBox(t)
	dir := t.TempDir()
	if err := errors.Join(syscall.Mkfifo(dir+"/pipe", 0o600), os.Symlink(dir+"/in/a.txt", dir+"/link"), os.Symlink("nowhere", dir+"/broken")); err != nil {
		t.Fatal(err)
	}
	multipart := strings.ReplaceAll("--b\nContent-Disposition: form-data; name=\"file\"; filename=\"FOLDER/in/a.txt\"\n\none\n"+
		"--b\nContent-Disposition: form-data; name=\"other\"\n\nx\n"+
		"--b\nContent-Disposition: form-data; name=\"file\"; filename=\"FOLDER/in/b.txt\"\n\nthree\n--b--\n", "\n", "\r\n")
	const fs = "filesystem.Filesystem/"
	for _, step := range []struct {
		do, kind, body string // do is method and path of HTTP, or a procedure; FOLDER is the folder
		status         int
		want           string // is in the answer
	}{
		{"POST /files", "multipart/form-data; boundary=b", multipart, 200, `{"name":"b.txt","path":"FOLDER/in/b.txt","type":"file"}`},
		{"GET /files?path=FOLDER/in/a.txt", "", "", 200, "one"},
		{"GET /files?path=FOLDER/link", "", "", 200, "one"},
		{"GET /files?path=FOLDER/broken", "", "", 404, `"code":404`},
		{"GET /files?path=FOLDER/none", "", "", 404, `"code":404`},
		{"GET /files?path=FOLDER", "", "", 400, `"code":400`},
		{"GET /files?path=FOLDER/pipe", "", "", 400, "no regular file"},
		{"GET /files?path=/dev/zero", "", "", 400, "no regular file"},
		{"GET /files?path=/proc/self/environ", "", "", 403, "the runtime"},
		{"GET /files?path=/proc/thread-self/maps", "", "", 403, "the runtime"},
		{"GET /files?path=/proc/version", "", "", 200, "Linux"},
		{"GET /files?path=FOLDER/in/a.txt&username=no-such-user", "", "", 401, "no-such-user"},
		{"GET /files?path=FOLDER/%00", "", "", 400, "NUL"},
		{"POST /files?path=FOLDER/pipe", "application/octet-stream", "x", 400, "no regular file"},
		{"POST /files?path=FOLDER", "application/octet-stream", "x", 400, `"code":400`},
		{"POST /files?path=/proc/self/oom_score_adj", "application/octet-stream", "500", 403, "the runtime"},
		{"POST /files?path=FOLDER/in/a.txt/b", "application/octet-stream", "x", 400, `"code":400`},
		{"POST /files", "application/octet-stream", "x", 400, "no path"},
		{"POST /files?path=FOLDER/x", "text/plain", "x", 400, "multipart"},
		{fs + "Stat", "", `{"path":"FOLDER/in/a.txt"}`, 200, `"type":"FILE_TYPE_FILE"`},
		{fs + "Stat", "", `{"path":"FOLDER/in/a.txt"}`, 200, `"size":"3"`},
		{fs + "Stat", "", `{"path":"FOLDER"}`, 200, `"FILE_TYPE_DIRECTORY"`},
		{fs + "Stat", "", `{"path":"FOLDER/link"}`, 200, `"symlinkTarget":"FOLDER/in/a.txt"`},
		{fs + "Stat", "", `{"path":"FOLDER/link"}`, 200, `"FILE_TYPE_FILE"`},
		{fs + "Stat", "", `{"path":"FOLDER/broken"}`, 200, `"FILE_TYPE_SYMLINK"`},
		{fs + "Stat", "", `{"path":"FOLDER/none"}`, 404, `"not_found"`},
		{fs + "MakeDir", "", `{"path":"FOLDER/out/deep"}`, 200, `"name":"deep"`},
		{fs + "MakeDir", "", `{"path":"FOLDER/out/deep"}`, 409, `"already_exists"`},
		{fs + "MakeDir", "", `{"path":"FOLDER/in/a.txt"}`, 400, `"invalid_argument"`},
		{fs + "MakeDir", "", `{"path":"FOLDER/in/a.txt/b"}`, 400, `"invalid_argument"`},
		{fs + "ListDir", "", `{"path":"FOLDER","depth":1}`, 200, `"path":"FOLDER/out"`},
		{fs + "ListDir", "", `{"path":"FOLDER","depth":2}`, 200, `"path":"FOLDER/in/a.txt"`},
		{fs + "ListDir", "", `{"path":"FOLDER/none"}`, 404, `"not_found"`},
		{fs + "ListDir", "", `{"path":"FOLDER/in/a.txt"}`, 400, `"invalid_argument"`},
		// A named pipe in place of a folder holds nothing up.
		{fs + "ListDir", "", `{"path":"FOLDER/pipe"}`, 400, `"invalid_argument"`},
		{fs + "Remove", "", `{"path":"FOLDER/pipe/a"}`, 400, `FOLDER/pipe`},
		{fs + "Remove", "", `{"path":"FOLDER/none/a"}`, 200, `{}`},
		{fs + "Move", "", `{"source":"FOLDER/in","destination":"FOLDER/moved/in"}`, 200, `"path":"FOLDER/moved/in"`},
		{fs + "Move", "", `{"source":"FOLDER/in","destination":"FOLDER/again"}`, 404, `"not_found"`},
		{"GET /files?path=FOLDER/moved/in/a.txt", "", "", 200, "one"},
		{fs + "Remove", "", `{"path":"FOLDER/moved"}`, 200, `{}`},
		{fs + "Remove", "", `{"path":"FOLDER/moved"}`, 200, `{}`},
		{fs + "Remove", "", `{"path":"/"}`, 400, "root"},
		{"GET /files?path=FOLDER/moved/in/a.txt", "", "", 404, ""},
		{fs + "Stat", "", `{`, 400, `"invalid_argument"`},
	} {
		insert := strings.NewReplacer("FOLDER", dir)
		method, path, ok := strings.Cut(insert.Replace(step.do), " ")
		if !ok {
			method, path, step.kind = "POST", "/"+step.do, "application/json"
		}
		// The order of the fields, and spaces between them, are random on purpose.
		status, body := b.do(t, method, path, insert.Replace(step.body), "Content-Type: "+step.kind)
		if status != step.status || !strings.Contains(strings.ReplaceAll(body, `": "`, `":"`), insert.Replace(step.want)) {
			t.Errorf("%s %s: %d %s", step.do, step.body, status, body)
		}
	}
}

// TestFilesOfThreads: /proc has the threads of a process too, under names that no list shows.
func TestFilesOfThreads(t *testing.T) {
	b := newBox(t)
	refused := 0
	for thread := range strings.FieldsSeq(b.sh(t, "", "ls /proc/$PPID/task")) {
		switch status, body := b.do(t, "GET", "/files?path=/proc/"+thread+"/environ", ""); status {
		case http.StatusForbidden:
			refused++
		case http.StatusNotFound: // it has ended
		default:
			t.Errorf("the variables of thread %s: %d %s", thread, status, body)
		}
	}
	if refused < 2 {
		t.Errorf("%d threads have files, want some", refused)
	}
}

// Names that are no text, and times that no message can hold, do not hide the other files.
func TestStrangeFiles(t *testing.T) {
	b := newBox(t)
	dir := memoryDir(t)
	watcher, err := b.files.CreateWatcher(t.Context(), as("", &filesystempb.CreateWatcherRequest{Path: dir, IncludeEntry: true}))
	if err != nil {
		t.Fatal(err)
	}
	far := time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := errors.Join(os.Mkdir(dir+"/\xff", 0o755), os.Symlink("\xfe", dir+"/\xff/link"), os.WriteFile(dir+"/late", nil, 0o600), os.Chtimes(dir+"/late", far, far)); err != nil {
		t.Fatal(err)
	}
	list := &filesystempb.ListDirRequest{Path: dir, Depth: 2}
	answer, err := b.files.ListDir(t.Context(), as("", list))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"late", "\uFFFD", "\uFFFD/link"}
	var got []string
	for _, e := range answer.Msg.GetEntries() {
		got = append(got, strings.TrimPrefix(e.GetPath(), dir+"/"))
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	if status, body := b.do(t, "POST", "/filesystem.Filesystem/ListDir", `{"path":"`+dir+`","depth":2}`, "Content-Type: application/json"); status != http.StatusOK {
		t.Errorf("as JSON: %d %s", status, body)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		answer, err := b.files.GetWatcherEvents(ctx, as("", &filesystempb.GetWatcherEventsRequest{WatcherId: watcher.Msg.GetWatcherId()}))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range answer.Msg.GetEvents() {
			if e.GetName() == "\uFFFD" && e.GetEntry().GetName() == "\uFFFD" {
				return nil
			}
		}
		return errors.New("there is no event of the new folder")
	})
}

// Uploads may be compressed.
func TestCompressedUpload(t *testing.T) {
	b := newBox(t)
	path := t.TempDir() + "/a"
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if _, err := w.Write(bytes.Repeat([]byte("text "), 1000)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	whole := compressed.String()
	for _, step := range []struct {
		encoding, body string
		status         int
	}{
		{"gzip", whole, 200},
		{"gzip", "text", 400},
		{"gzip", whole[:len(whole)-4], 400},
		{"br", whole, 400},
	} {
		status, body := b.do(t, "POST", "/files?path="+path, step.body, "Content-Type: application/octet-stream", "Content-Encoding: "+step.encoding)
		if status != step.status {
			t.Errorf("%s, %d bytes: %d %s", step.encoding, len(step.body), status, body)
		}
		if got, err := os.ReadFile(path); status == 200 && (err != nil || string(got) != strings.Repeat("text ", 1000)) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
}

// memoryDir is a folder for many files: in memory, where the system has that.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "sandlot-runtime-test-") //nolint:usetesting // T.TempDir is on a disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Large lists are refused, not built.
func TestLargeFolder(t *testing.T) {
	b := newBox(t)
	dir := memoryDir(t)
	b.sh(t, "", "cd "+dir+" && seq 1 20001 | xargs touch")
	_, err := b.files.ListDir(t.Context(), as("", &filesystempb.ListDirRequest{Path: dir}))
	wantCode(t, err, connect.CodeResourceExhausted, "20000 entries")
	b.sh(t, "", "rm "+dir+"/1")
	answer, err := b.files.ListDir(t.Context(), as("", &filesystempb.ListDirRequest{Path: dir}))
	if err != nil || len(answer.Msg.GetEntries()) != 20000 {
		t.Errorf("%v", err)
	}
}

func TestWatch(t *testing.T) {
	b := newBox(t)
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/old", 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := b.files.CreateWatcher(t.Context(), as("", &filesystempb.CreateWatcherRequest{Path: dir + "/none"}))
	wantCode(t, err, connect.CodeNotFound, "")
	flat, err := b.files.CreateWatcher(t.Context(), as("", &filesystempb.CreateWatcherRequest{Path: dir}))
	if err != nil {
		t.Fatal(err)
	}
	id := flat.Msg.GetWatcherId()
	stream, err := b.files.WatchDir(t.Context(), as("", &filesystempb.WatchDirRequest{Path: dir, Recursive: true, IncludeEntry: true}))
	if err != nil || !stream.Receive() || stream.Msg().GetStart() == nil {
		t.Fatalf("%v %v", err, stream.Err())
	}
	defer stream.Close()
	seen := map[string]bool{}
	until := func(wants ...string) {
		t.Helper()
		for _, want := range wants {
			for !seen[want] {
				if !stream.Receive() {
					t.Fatalf("%v before %s, after %v", stream.Err(), want, seen)
				}
				if e := stream.Msg().GetFilesystem(); e != nil {
					seen[e.GetType().String()[len("EVENT_TYPE_"):]+" "+e.GetName()] = true
					if e.GetType() == filesystempb.EventType_EVENT_TYPE_WRITE && e.GetEntry().GetPath() != filepath.Join(dir, e.GetName()) {
						t.Errorf("the entry of %v is %v", e.GetName(), e.GetEntry())
					}
				}
			}
		}
	}
	b.sh(t, "", "cd "+dir+"; echo x >a; echo x >old/b; mkdir -p new/er; echo x >new/er/c")
	until("CREATE a", "WRITE a", "CREATE old/b", "CREATE new", "CREATE new/er", "CREATE new/er/c")
	b.sh(t, "", "cd "+dir+"; chmod 600 a; mv a d; rm d; echo x >new/er/e")
	until("CHMOD a", "RENAME a", "CREATE d", "REMOVE d", "WRITE new/er/e")

	polled := map[string]bool{}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		answer, err := b.files.GetWatcherEvents(ctx, as("", &filesystempb.GetWatcherEventsRequest{WatcherId: id}))
		if err != nil {
			return err
		}
		for _, e := range answer.Msg.GetEvents() {
			polled[e.GetName()] = true
		}
		if !polled["a"] || !polled["d"] || !polled["new"] {
			return fmt.Errorf("only %v", polled)
		}
		return nil
	})
	if polled["old/b"] {
		t.Error("a watch that is not recursive saw the folders below")
	}
	if _, err := b.files.RemoveWatcher(t.Context(), as("", &filesystempb.RemoveWatcherRequest{WatcherId: id})); err != nil {
		t.Error(err)
	}
	_, err = b.files.GetWatcherEvents(t.Context(), as("", &filesystempb.GetWatcherEventsRequest{WatcherId: id}))
	wantCode(t, err, connect.CodeNotFound, "not found")
}

// What a watcher keeps is bounded with what the events say of the files, such as the long
// targets of symlinks.
func TestLargeEvents(t *testing.T) {
	b := newBox(t)
	dir := memoryDir(t)
	answer, err := b.files.CreateWatcher(t.Context(), as("", &filesystempb.CreateWatcherRequest{Path: dir, IncludeEntry: true}))
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		for range 1000 { // fewer than are kept of small ones
			links++
			if err := os.Symlink(strings.Repeat("x", 4000), fmt.Sprint(dir, "/", links)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := b.files.GetWatcherEvents(ctx, as("", &filesystempb.GetWatcherEventsRequest{WatcherId: answer.Msg.GetWatcherId()}))
		if connect.CodeOf(err) != connect.CodeResourceExhausted {
			return errors.New("no events were lost")
		}
		return nil
	})
}

// Watchers and what they keep are bounded.
func TestTooManyWatchers(t *testing.T) {
	b := newBox(t)
	dir := memoryDir(t)
	var ids []string
	for {
		answer, err := b.files.CreateWatcher(t.Context(), as("", &filesystempb.CreateWatcherRequest{Path: dir}))
		if err != nil {
			wantCode(t, err, connect.CodeResourceExhausted, "watch")
			if len(ids) > 64 || len(ids) < 8 { // the kernel may have fewer for a user
				t.Errorf("%d watchers", len(ids))
			}
			break
		}
		ids = append(ids, answer.Msg.GetWatcherId())
	}
	last := ids[0]
	for _, id := range ids[1:] {
		if _, err := b.files.RemoveWatcher(t.Context(), as("", &filesystempb.RemoveWatcherRequest{WatcherId: id})); err != nil {
			t.Fatal(err)
		}
	}
	b.sh(t, "", "cd "+dir+"; seq 1 5000 | xargs touch")
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := b.files.GetWatcherEvents(ctx, as("", &filesystempb.GetWatcherEventsRequest{WatcherId: last}))
		if connect.CodeOf(err) != connect.CodeResourceExhausted {
			b.sh(t, "", "cd "+dir+"; seq 1 5000 | xargs touch")
			return errors.New("no events were lost")
		}
		return nil
	})
	b.Stop(t)
}

// The files of the runtime in /proc are refused where a process has mounted them elsewhere in a namespace of its own,
// too: below another folder, below another /proc, and as those of another process.
func TestProcMountedElsewhere(t *testing.T) {
	b := newBox(t)
	for name, tc := range map[string]struct {
		mount string   // $1 is a folder, and $2 the runtime
		files []string // $0 is the process that mounts
	}{
		"another folder":  {"mount --rbind /proc $1", []string{"$1/self/environ", "$1/thread-self/maps", "$1/$2/environ"}},
		"below /proc":     {"mount --rbind /proc $1; mount -t tmpfs none /proc; mkdir /proc/x; mount --rbind $1 /proc/x", []string{"/proc/x/self/maps", "/proc/x/$2/maps"}},
		"another process": {"mount --bind /proc/$2 /proc/$$", []string{"/proc/$0/maps"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, runtime := t.TempDir(), strconv.Itoa(b.Pid())
			cmd := exec.CommandContext(t.Context(), "unshare", "-Urm", "sh", "-c", "set -e; "+tc.mount+"; echo $$; exec cat", "sh", dir, runtime)
			input, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			output, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Skipf("namespaces of a user: %v", err)
			}
			defer func() {
				_ = input.Close()
				_ = cmd.Wait()
			}()
			line, err := bufio.NewReader(output).ReadString('\n')
			if err != nil {
				t.Skipf("this kernel lets users have no namespaces: %v", err)
			}
			pid := strings.TrimSpace(line)
			for _, file := range tc.files {
				path := "/proc/" + pid + "/root" + strings.NewReplacer("$0", pid, "$1", dir, "$2", runtime).Replace(file)
				if status, body := b.do(t, "GET", "/files?path="+path, ""); status != 403 {
					t.Errorf("%s: %d %q", path, status, body)
				}
			}
		})
	}
	if status, body := b.do(t, "GET", "/files?path=/proc/cpuinfo", ""); status != 200 || body == "" {
		t.Errorf("a file of no process: %d %q", status, body)
	}
}
