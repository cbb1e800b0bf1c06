// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cluster keeps a local control plane with Sandlot running in the
// background, until it is asked to stop:
//
//	cluster up   [flags]   start it, or say that it runs
//	cluster down [flags]   stop it; its data is kept
//
// What runs in the background is this program as well ("cluster serve"): the
// other processes are its children, which it starts again when they end, and which
// end with it. It holds the data folder as long as it runs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/pkg/datadir"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/realnode"
)

// defaultDir is the folder of a cluster for which CLUSTER_DIR names no other.
const defaultDir = "_output/cluster"

// stopPatience is how long everything may take to stop before it is killed. Each
// program that takes long is killed by the one in the background before that.
const stopPatience = 5 * time.Minute

type options struct {
	dir   string
	clean bool
	plane controlplane.Options
	// realNodes is how many nodes run containers.
	realNodes int
	// sandlot is what runs against the control plane.
	sandlot controlplane.SandlotOptions
	// args are the flags.
	args []string
}

// state is what a running cluster says of itself, in a file.
type state struct {
	Kubeconfig string `json:"kubeconfig"`
	// Pid is that of "cluster serve".
	Pid int `json:"pid"`
	// RealNodes is how many nodes run containers.
	RealNodes int `json:"realNodes,omitempty"`
}

func main() {
	realnode.MaybeRunNode() // "cluster serve" starts this program as a node
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	commands := map[string]func(context.Context, *options) error{"up": up, "down": down, "serve": serve}
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New("usage: cluster up|down [flags]")
	}
	o := &options{args: args[1:]}
	flags := flag.NewFlagSet("cluster "+args[0], flag.ExitOnError)
	flags.StringVar(&o.dir, "dir", defaultDir, "Folder of all data, certificates and logs. Two clusters need two folders.")
	flags.BoolVar(&o.clean, "clean", false, "Remove the data: before the start, or after the stop.")
	flags.IntVar(&o.plane.APIServerPort, "port", 0, "Port of kube-apiserver. 0 takes that of the last time, or a free one.")
	flags.IntVar(&o.plane.EtcdPort, "etcd-port", 0, "Port of the cluster's etcd. 0 takes that of the last time, or a free one.")
	flags.IntVar(&o.plane.Nodes, "nodes", 0, "Simulated nodes, each with room for 10,000 pods. 0 means 4, or none beside real nodes.")
	flags.IntVar(&o.realNodes, "real-nodes", 0, "Nodes that run containers, on Linux as root. Their label is "+realnode.Label+"=true, and beside simulated nodes they have a taint of this key.")
	flags.StringVar(&o.sandlot.Overlay, "overlay", "default", "Overlay of artifacts/deploy to run: default, or single.")
	flags.IntVar(&o.sandlot.Replicas, "replicas", 0, "Replicas of sandlot-apiserver. 0 means as the overlay needs.")
	if err := flags.Parse(o.args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	return commands[args[0]](ctx, o)
}

func (o *options) stateFile() string { return filepath.Join(o.dir, "cluster.json") }

// state returns nil if nothing is noted.
func (o *options) state() (*state, error) {
	content, err := os.ReadFile(o.stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	s := &state{}
	return s, errors.Join(err, json.Unmarshal(content, s))
}

// runs reports whether a cluster holds the folder. A folder that has something else in it is
// refused.
func (o *options) runs() (bool, error) {
	held, err := datadir.Open(o.dir)
	if errors.Is(err, datadir.ErrLocked) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, held.Close()
}

// serve runs everything until the context ends.
func serve(ctx context.Context, o *options) (err error) {
	held, err := datadir.Open(o.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	o.plane.Dir = o.dir
	if o.realNodes > 0 && o.plane.Nodes == 0 {
		o.plane.Nodes = -1
	}
	var nodes realNodes // they end last: what is sent to pods that are not there leaves the machine
	defer func() { err = errors.Join(err, nodes.stop()) }()
	plane, err := controlplane.Start(ctx, o.plane)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	if nodes, err = startNodes(ctx, o, plane); err != nil {
		return err
	}
	if _, err := plane.Install(ctx, o.sandlot); err != nil {
		return err
	}
	content, err := json.Marshal(state{Kubeconfig: plane.Kubeconfig(), Pid: os.Getpid(), RealNodes: o.realNodes})
	if err != nil {
		return err
	}
	// It appears whole.
	fresh := o.stateFile() + ".new"
	if err := errors.Join(os.WriteFile(fresh, content, 0o600), os.Rename(fresh, o.stateFile())); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(o.stateFile())) }()
	<-ctx.Done()
	return nil
}

// up starts "cluster serve" in the background and returns when it is ready.
func up(ctx context.Context, o *options) error {
	if o.realNodes > 0 {
		if err := realnode.CheckSupported(realnode.Options{}); err != nil {
			return err
		}
	}
	running, err := o.runs()
	if err != nil {
		return err
	}
	if !running {
		_ = os.Remove(o.stateFile()) // of one that was killed
		if o.clean {
			if err := os.RemoveAll(o.dir); err != nil {
				return err
			}
		}
		if err := o.launch(ctx); err != nil {
			return err
		}
	}
	s, err := o.state()
	if err != nil || s == nil {
		return errors.Join(fmt.Errorf("the cluster in %s is not ready yet", o.dir), err)
	}
	if s.RealNodes != o.realNodes {
		return fmt.Errorf("the cluster in %s runs with %d real nodes: stop it first", o.dir, s.RealNodes)
	}
	fmt.Printf(`The cluster is ready.

  export KUBECONFIG=%s

%s
Logs are in %s. This stops it:

  %s
`, s.Kubeconfig, s.next(), filepath.Join(o.dir, "log"), o.stopCommand())
	return nil
}

// stopCommand is the command that stops this cluster, and no other.
func (o *options) stopCommand() string {
	if usual, err := filepath.Abs(defaultDir); err == nil && usual == o.dir {
		return "make cluster-down"
	}
	return "make cluster-down CLUSTER_DIR=" + o.dir
}

// whereToLook says how to find a cluster that is not in the folder.
func (o *options) whereToLook() string {
	return fmt.Sprintf(`No cluster is running in %s.
A cluster that was started with CLUSTER_DIR is stopped with the same CLUSTER_DIR. This lists the
clusters that run on this machine, each with its --dir:

  ps axww -o pid,command | grep '[c]luster serve'`, o.dir)
}

func (o *options) launch(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if _, err := o.runs(); err != nil { // which makes the folder
		return err
	}
	path := filepath.Join(o.dir, "cluster.log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()                                                  // the process has it by then
	cmd := exec.Command(self, append([]string{"serve"}, o.args...)...) // outlives ctx
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // and the terminal
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { // ends with the process, or with us
		_ = cmd.Wait()
		close(ended)
	}()
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		select {
		case <-ended:
			said, _ := os.ReadFile(path)
			return false, fmt.Errorf("the cluster did not start, its logs are in %s\n%s", filepath.Join(o.dir, "log"), said)
		default:
			s, err := o.state()
			return s != nil, err
		}
	})
	if ctx.Err() != nil { // an interrupted start leaves nothing in the background
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-ended
	}
	return err
}

// down stops what up has started, and returns when all of it has ended.
func down(ctx context.Context, o *options) error {
	running, err := o.runs()
	if err != nil {
		return err
	}
	s, err := o.state()
	switch {
	case err != nil:
		return err
	case running && s == nil:
		return fmt.Errorf("the cluster in %s is not ready yet", o.dir)
	case running:
		if err := o.stop(ctx, s.Pid); err != nil {
			return err
		}
		fmt.Println("The cluster has stopped.")
	default:
		fmt.Println(o.whereToLook())
		if err := realnode.RemoveLeftovers(); err != nil { // it may have been killed
			return err
		}
	}
	if o.clean {
		return os.RemoveAll(o.dir)
	}
	return nil
}

// stop asks the process that holds the folder to end, and returns when it has. It is killed if
// it does not.
func (o *options) stop(ctx context.Context, pid int) (err error) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := syscall.Kill(pid, signal); err != nil {
			return fmt.Errorf("stopping process %d: %w", pid, err)
		}
		err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, stopPatience, true, func(context.Context) (bool, error) {
			running, err := o.runs()
			return !running, err
		})
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}
