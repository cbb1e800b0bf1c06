// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

const (
	// namespaces are those of a node.
	namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC

	// startPatience is how long a node may take to be ready. It is no measure of speed:
	// machines that run tests are busy.
	startPatience = 5 * time.Minute
	readyInterval = 100 * time.Millisecond
)

// Node is a running node.
type Node struct {
	options Options
	plane   *controlplane.ControlPlane
	tools   *tools
	// dir is what the node keeps: it is there again when one of this name is started again.
	dir    string
	number *number

	cmd     *exec.Cmd
	exited  chan struct{} // closed when all processes of the node have ended
	forward *controlplane.Forwarder
}

// checkNamespaces returns an error if this process cannot make the namespaces of a node.
func checkNamespaces() error {
	if os.Geteuid() != 0 {
		return errUnsupported
	}
	// Root of a container often may not.
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{mainVariable + "=" + mainTry}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("real nodes need namespaces, which root of this machine may not make: %w: %s", err, out)
	}
	return nil
}

// Start starts a node, and returns when pods can be scheduled to it.
func Start(ctx context.Context, plane *controlplane.ControlPlane, o Options) (*Node, error) {
	if err := CheckSupported(o); err != nil {
		return nil, err
	}
	if err := RemoveLeftovers(); err != nil {
		return nil, err
	}
	n := &Node{options: o, plane: plane, dir: plane.NodeFolder(o.Name)}
	var err error
	if n.tools, err = findTools(o); err != nil {
		return nil, err
	}
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting node %s: %w", o.Name, err), n.Stop())
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	for _, dir := range []string{"", folderEtc, folderAccount, folderLog, folderLib, folderVarLog} {
		if err := os.MkdirAll(filepath.Join(n.dir, dir), 0o755); err != nil {
			return err
		}
	}
	var err error
	if n.number, err = takeNumber(filepath.Join(n.dir, "number")); err != nil {
		return err
	}
	if err := n.writeConfigs(); err != nil {
		return err
	}
	if n.options.NetworkPolicies {
		if err := n.admitPolicyProgram(ctx); err != nil {
			return err
		}
	}
	return n.Boot(ctx)
}

// HostAddress is where pods of the node reach what listens there on this machine, until Kill.
func (n *Node) HostAddress() string { return n.number.hostAddress() }

// Address is that of the node, where its kubelet listens.
func (n *Node) Address() string { return n.number.nodeAddress() }

// Boot starts a node again that Kill has ended, and returns when pods can be scheduled to it.
func (n *Node) Boot(ctx context.Context) error {
	if err := errors.Join(n.number.removeLink(), removeCgroups(n.number.cgroup())); err != nil {
		return err
	}
	if err := makeCgroups(n.number.cgroup()); err != nil {
		return err
	}
	started := time.Now()
	if err := n.launch(ctx); err != nil {
		return err
	}
	return n.awaitReady(ctx, started)
}

// launch starts the process of the node.
func (n *Node) launch(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(n.dir, folderLog, "node.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has it by then
	n.cmd = exec.Command("/proc/self/exe")
	n.cmd.Env = []string{mainVariable + "=" + mainNode}
	n.cmd.Stdout, n.cmd.Stderr = log, log
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	stdin, err := n.cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	if err := program.StartChild(n.cmd); err != nil {
		return err
	}
	n.exited = make(chan struct{})
	go func() { // ends with the process
		defer close(n.exited)
		_ = n.cmd.Wait() // what it returns is in ProcessState
	}()
	if err := n.number.connect(ctx, n.tools.ip, n.cmd.Process.Pid); err != nil {
		return err
	}
	server := strings.TrimPrefix(n.plane.Config().Host, "https://")
	// kube-apiserver listens on loopback only.
	if n.forward, err = controlplane.Forward(ctx, n.number.hostAddress()+":"+apiServerPort, func() []string { return []string{server} }); err != nil {
		return fmt.Errorf("listening for a node: %w", err)
	}
	return json.NewEncoder(stdin).Encode(n.bootConfig())
}

func (n *Node) awaitReady(ctx context.Context, started time.Time) error {
	client, err := kubernetes.NewForConfig(n.plane.Config())
	if err != nil {
		return err
	}
	nodes := client.CoreV1().Nodes()
	last := errors.New("not asked yet")
	err = wait.PollUntilContextTimeout(ctx, readyInterval, startPatience, true, func(ctx context.Context) (bool, error) {
		select {
		case <-n.exited:
			return false, fmt.Errorf("it ended: %s", n.cmd.ProcessState)
		default:
		}
		var node *corev1.Node
		if node, last = nodes.Get(ctx, n.options.Name, metav1.GetOptions{}); last == nil {
			last = checkReady(node, started)
		}
		// A kubelet gives taints to a new node only, and this one may have been there before.
		if taints := n.taints(); last == nil && !equality.Semantic.DeepEqual(node.Spec.Taints, taints) {
			node.Spec.Taints = taints
			_, last = nodes.Update(ctx, node, metav1.UpdateOptions{})
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("it is not ready, its logs are in %s: %w, at last: %w", filepath.Join(n.dir, folderLog), err, last)
	}
	return nil
}

func (n *Node) taints() []corev1.Taint {
	if !n.options.Tainted {
		return nil
	}
	return []corev1.Taint{{Key: Label, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
}

// checkReady returns nil if a node has become ready since it was started.
func checkReady(node *corev1.Node, started time.Time) error {
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if condition.Status != corev1.ConditionTrue {
			return errors.New(condition.Message)
		}
		if condition.LastHeartbeatTime.Time.Before(started.Truncate(time.Second)) {
			return errors.New("it has not been heard of yet")
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key != Label {
				return fmt.Errorf("it has the taint %s", taint.Key)
			}
		}
		return nil
	}
	return errors.New("it has no condition Ready yet")
}

// Kill kills all processes of the node at once. Unlike after a loss of power, everything that they wrote
// to files is kept. Traffic to its pods is dropped until Boot or Stop.
func (n *Node) Kill() {
	if n.forward != nil {
		n.forward.Close()
	}
	if n.exited != nil {
		_ = n.cmd.Process.Kill() // it may have ended already
		<-n.exited
	}
}

// KillProgram ends the kubelet or containerd of the node, as a crash would. It is started again.
func (n *Node) KillProgram(name string) error {
	// Each thread has those that it has started.
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", n.cmd.Process.Pid))
	if err != nil {
		return err
	}
	var children []string
	for _, thread := range threads {
		content, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		children = append(children, strings.Fields(string(content))...)
	}
	for _, child := range children {
		if command, err := os.ReadFile(filepath.Join("/proc", child, "comm")); err != nil || strings.TrimSpace(string(command)) != name {
			continue
		}
		pid, err := strconv.Atoi(child)
		if err != nil {
			return err
		}
		return syscall.Kill(pid, syscall.SIGKILL)
	}
	return fmt.Errorf("%s does not run in node %s", name, n.options.Name)
}

// Stop is Kill, and removes what is left of the node on the machine. Programs that send to its
// pods have to be stopped first: what they send would leave the machine.
func (n *Node) Stop() error {
	n.Kill()
	if n.number == nil {
		return nil
	}
	return errors.Join(n.number.clean(), n.number.release())
}
