// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing/fstest"
)

// Images that MakeImages makes.
const (
	// PauseImage is what keeps the namespaces of a pod.
	PauseImage = "localhost/sandlot-test/pause:1"
	// RuntimeImage has sandlot-runtime, as the image of that name has.
	RuntimeImage = "localhost/sandlot-test/runtime:1"
	// ShellImage has busybox, by the names of all its commands, and /bin/bash by the same shell.
	ShellImage = "localhost/sandlot-test/shell:1"
	// OtherShellImage is another image of the same, whose /etc/version is "2".
	OtherShellImage = "localhost/sandlot-test/shell:2"
)

// MakeImages makes an archive of these images in a folder, and returns its path. Programs is the
// folder that has sandlot-runtime.
func MakeImages(ctx context.Context, dir, programs string) (string, error) {
	pause := filepath.Join(dir, "pause")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", pause,
		"github.com/sandlot-io/sandlot/pkg/testutil/realnode/pause")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the program of pods: %w: %s", err, out)
	}
	paused, err := os.ReadFile(pause)
	if err != nil {
		return "", err
	}
	installed, err := os.ReadFile(filepath.Join(programs, "sandlot-runtime"))
	if err != nil {
		return "", err
	}
	shell, err := shellFiles(ctx)
	if err != nil {
		return "", err
	}
	archive := &imageArchive{files: fstest.MapFS{}}
	if err := archive.add(PauseImage, []string{"/pause"}, fstest.MapFS{"pause": executable(paused)}); err != nil {
		return "", err
	}
	if err := archive.add(RuntimeImage, []string{"/sandlot-runtime"}, fstest.MapFS{"sandlot-runtime": executable(installed)}); err != nil {
		return "", err
	}
	if err := archive.add(ShellImage, []string{"/bin/sh"}, shell); err != nil {
		return "", err
	}
	shell["etc/version"] = &fstest.MapFile{Mode: 0o644, Data: []byte("2\n")}
	if err := archive.add(OtherShellImage, []string{"/bin/sh"}, shell); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "images.tar")
	return path, archive.write(path)
}

func shellFiles(ctx context.Context) (fstest.MapFS, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	busybox, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	names, err := exec.CommandContext(ctx, path, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("asking busybox for its commands: %w", err)
	}
	files := fstest.MapFS{
		"bin/busybox": executable(busybox),
		"bin/bash":    executable([]byte("#!/bin/sh\nexec /bin/sh \"$@\"\n")),
		"etc/passwd":  {Mode: 0o644, Data: []byte("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n")},
		"etc/group":   {Mode: 0o644, Data: []byte("root:x:0:\nuser:x:1000:\n")},
		"home/user":   {Mode: fs.ModeDir | 0o755},
		"root":        {Mode: fs.ModeDir | 0o700},
		"tmp":         {Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	}
	for name := range strings.FieldsSeq(string(names)) {
		if files["bin/"+name] == nil {
			files["bin/"+name] = &fstest.MapFile{Mode: fs.ModeSymlink | 0o777, Data: []byte("busybox")}
		}
	}
	return files, nil
}

func executable(content []byte) *fstest.MapFile { return &fstest.MapFile{Mode: 0o755, Data: content} }

// imageArchive is what docker save writes, and ctr images import reads.
type imageArchive struct {
	files fstest.MapFS
	list  []archivedImage
}

type archivedImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// add adds an image of one layer.
func (a *imageArchive) add(name string, command []string, files fstest.MapFS) error {
	var layer bytes.Buffer
	if err := writeTar(&layer, files); err != nil {
		return err
	}
	digest := sum(layer.Bytes())
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": command, "Env": []string{"PATH=/bin"}, "WorkingDir": "/"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest}},
	})
	if err != nil {
		return err
	}
	image := archivedImage{Config: sum(config) + ".json", RepoTags: []string{name}, Layers: []string{digest + ".tar"}}
	a.files[image.Config] = &fstest.MapFile{Mode: 0o644, Data: config}
	a.files[image.Layers[0]] = &fstest.MapFile{Mode: 0o644, Data: layer.Bytes()}
	a.list = append(a.list, image)
	return nil
}

func (a *imageArchive) write(path string) error {
	list, err := json.Marshal(a.list)
	if err != nil {
		return err
	}
	a.files["manifest.json"] = &fstest.MapFile{Mode: 0o644, Data: list}
	var out bytes.Buffer
	if err := writeTar(&out, a.files); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}

func writeTar(out *bytes.Buffer, files fstest.MapFS) error {
	w := tar.NewWriter(out)
	return errors.Join(w.AddFS(files), w.Close())
}
