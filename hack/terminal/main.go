// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command terminal runs the lines that README.md shows against a server of its own,
// and draws what they print as a picture of a terminal:
//
//	terminal PICTURE.svg
//
// It takes bin/sandlot and bin/kubectl, and leaves nothing running.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// lines are what the picture shows; most is how many lines of the answer.
var lines = []struct {
	command string
	most    int
}{
	{"bin/kubectl apply -f artifacts/example/sandboxset.yaml", 1},
	{"bin/kubectl wait --timeout=5m --for=jsonpath={.status.availableReplicas}=20 sandboxset/python", 1},
	{"bin/kubectl get sandboxsets", 2},
	{"bin/kubectl create -f artifacts/example/claims/one.yaml", 1},
	{"bin/kubectl get sandboxclaims -o wide", 2},
	{"bin/kubectl wait --timeout=5m --for=condition=Ready sandboxclaims --all", 1},
	{"bin/kubectl get sandboxes -l agents.kruise.io/sandbox-claimed=true", 2},
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "terminal:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) != 1 {
		return errors.New("usage: terminal PICTURE.svg")
	}
	dir, err := os.MkdirTemp("", "sandlot-terminal-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	stop, err := serve(ctx, filepath.Join(dir, "data"), kubeconfig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	var screen []string
	for _, line := range lines {
		cmd := exec.CommandContext(ctx, "sh", "-c", line.command)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", line.command, err, out)
		}
		answer := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
		screen = append(append(screen, "$ "+line.command), answer[:min(len(answer), line.most)]...)
	}
	return os.WriteFile(args[0], []byte(draw(screen)), 0o644)
}

// serve starts a server and returns when it is ready, with how to stop it.
func serve(ctx context.Context, data, kubeconfig string) (stop func() error, err error) {
	cmd := exec.CommandContext(ctx, "bin/sandlot", "up", "--data-dir", data, "--secure-port", "0", "--kubeconfig", kubeconfig)
	said, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, said) // until it ends
		return cmd.Wait()
	}
	for scanner := bufio.NewScanner(said); scanner.Scan(); {
		if scanner.Text() == "ready" {
			return stop, nil
		}
	}
	return nil, errors.Join(errors.New("the server ended"), cmd.Wait())
}
