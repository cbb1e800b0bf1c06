// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/pkg/datadir"
)

// logName is the log of "cluster serve", beside those of its children.
const logName = "cluster.log"

// up starts "cluster serve" in the background and returns when it is ready.
func up(ctx context.Context, o options) error {
	var err error
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	s, err := readState(o.dir)
	if err != nil {
		return err
	}
	if s != nil && s.Server.runs(ctx, o.dir) {
		fmt.Println("The cluster is running.")
		return tell(s)
	}
	if s != nil {
		// It was killed: its children with it on Linux, but not elsewhere.
		if err := forget(ctx, o.dir, s); err != nil {
			return err
		}
	}
	if o.clean {
		if err := remove(o.dir); err != nil {
			return err
		}
	}
	start := time.Now()
	s, err = o.launch(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("The cluster is ready after %s.\n", time.Since(start).Round(100*time.Millisecond))
	return tell(s)
}

func (o *options) launch(ctx context.Context) (*state, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := hold(o.dir); err != nil {
		return nil, err
	}
	path := filepath.Join(o.dir, logName)
	log, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer log.Close()                                                    // the process has it by then
	cmd := exec.Command(self, append([]string{"serve"}, o.args()...)...) // outlives ctx
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // and the terminal
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() { // ends with the process, or with us
		_ = cmd.Wait()
		close(ended)
	}()
	var s *state
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		select {
		case <-ended:
			said, _ := os.ReadFile(path)
			return false, fmt.Errorf("the cluster did not start, its logs are in %s\n%s", filepath.Join(o.dir, "log"), said)
		default:
		}
		var err error
		s, err = readState(o.dir)
		return s != nil, err
	})
	if ctx.Err() != nil { // whoever interrupts does not want it in the background either
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-ended
	}
	return s, err
}

// tell says what to do with a running cluster.
func tell(s *state) error {
	fmt.Printf(`
  export KUBECONFIG=%s

  bin/kubectl apply -f artifacts/example/
  bin/kubectl get sandboxsets,sandboxes,pods
  bin/kubectl create -f artifacts/example/claims/one.yaml
  bin/kubectl get sandboxclaims

Logs are in %s. "make cluster-down" stops it.
`, s.Kubeconfig, filepath.Join(filepath.Dir(s.Kubeconfig), "log"))
	return nil
}

// hold refuses a folder that has something else in it, or is in use.
func hold(dir string) error {
	held, err := datadir.Open(dir)
	if err != nil {
		return err
	}
	return held.Close()
}

// remove removes a folder that is ours and not in use.
func remove(dir string) error {
	if _, err := os.Stat(dir); os.IsNotExist(err) {
		return nil
	}
	if err := hold(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
