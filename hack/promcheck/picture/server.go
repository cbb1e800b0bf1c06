// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sandlot-io/sandlot/hack/promcheck/scrapes"
)

const (
	interval = 3 * time.Second // between scrapes
	job      = "sandlot"
)

// observed is what a server showed between two times.
type observed struct {
	db         scrapes.Database
	start, end time.Time
}

// server is a running one.
type server struct {
	root, kubeconfig string
	cmd              *exec.Cmd
	said             io.Reader
}

// watch starts a server, has claims made of it, and scrapes it for that long.
func watch(ctx context.Context, root string, lasts time.Duration) (_ *observed, err error) {
	dir, err := os.MkdirTemp("", "sandlot-picture-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := serve(ctx, root, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()

	seen := &observed{start: time.Now()}
	if err := s.scrape(ctx, seen); err != nil { // what rates begin from
		return nil, err
	}
	loading, stopLoad := context.WithCancel(ctx)
	loaded := make(chan error, 1)
	go func() { loaded <- s.load(loading) }()
	defer func() { stopLoad(); err = errors.Join(err, <-loaded) }()

	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for time.Since(seen.start) < lasts {
		<-ticker.C
		if err := s.scrape(ctx, seen); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

// serve starts a server and returns it when it is ready.
func serve(ctx context.Context, root, dir string) (*server, error) {
	s := &server{root: root, kubeconfig: filepath.Join(dir, "kubeconfig")}
	s.cmd = exec.CommandContext(ctx, filepath.Join(root, "bin", "sandlot"), "up", "--data-dir", filepath.Join(dir, "data"), "--secure-port", "0", "--kubeconfig", s.kubeconfig)
	said, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.said = said
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for scanner := bufio.NewScanner(said); scanner.Scan(); {
		if scanner.Text() == "ready" {
			return s, nil
		}
	}
	return nil, errors.Join(errors.New("the server ended"), s.cmd.Wait())
}

func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, s.said) // until it ends
	return s.cmd.Wait()
}

// scrape adds what the server shows now.
func (s *server) scrape(ctx context.Context, seen *observed) error {
	out, err := s.kubectl(ctx, "", "get", "--raw", "/metrics")
	if err != nil {
		return err
	}
	seen.end = time.Now()
	return seen.db.Add(bytes.NewReader(out), job, seen.end)
}

// load makes two pools and claims of them until the context ends: some a second, in
// between more at once than a pool has.
func (s *server) load(ctx context.Context) error {
	if _, err := s.kubectl(ctx, pool("node", 12)+pool("python", 30), "apply", "-f", "-"); err != nil {
		return unlessEnded(ctx, err)
	}
	for i := 0; ctx.Err() == nil; i++ {
		claims := strings.Repeat(claim("python", 1), 2+i%3) + claim("node", 1)
		if i%12 == 11 {
			claims += strings.Repeat(claim("node", 8), 3)
		}
		if _, err := s.kubectl(ctx, claims, "create", "-f", "-"); err != nil {
			return unlessEnded(ctx, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	return nil
}

// unlessEnded drops the error of what was ended on purpose.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func pool(name string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxSet
metadata: {name: %s}
spec:
  replicas: %d
  template:
    spec: {containers: [{name: sandbox, image: %[1]s}]}
---
`, name, replicas)
}

func claim(set string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxClaim
metadata: {generateName: c-}
spec: {templateName: %s, replicas: %d}
---
`, set, replicas)
}

// kubectl runs it and returns what it wrote to stdout.
func (s *server) kubectl(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.root, "bin", "kubectl"), append([]string{"--kubeconfig", s.kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return out, err
}
