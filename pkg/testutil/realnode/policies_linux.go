// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	_ "embed" // for the file below
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
)

// policiesYAML is what kube-network-policies may read.
//
//go:embed policies.yaml
var policiesYAML string

// queue is the number of the queue from which kube-network-policies takes packets.
const queue = "100"

// queueNew sends the first packet of each connection of a chain to kube-network-policies. The program has
// rules of nftables for it, which many kernels do not know. Without the program, the packets are dropped.
func queueNew(chain string, match ...string) []string {
	args := append([]string{"-t", "mangle", "-A", chain}, match...)
	return append(args, "-m", "conntrack", "--ctstate", "NEW", "-j", "NFQUEUE", "--queue-num", queue)
}

// checkFilters returns an error if this kernel does not have what makeFilters needs.
func checkFilters(iptables string) error {
	cmd := exec.Command(iptables, queueNew("FORWARD")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("NetworkPolicies need a kernel with NFQUEUE: %w: %s", err, out)
	}
	return nil
}

// makeFilters has NetworkPolicies decide what pods send and get, except for what comes from their node, and
// the address of the Service of kube-apiserver lead there, as kube-proxy would.
func (c *bootConfig) makeFilters() error {
	if out, err := exec.Command(filepath.Join(insidePrograms, "ip"), "route", "add", controlplane.ServiceAddress, "via", c.HostAddress).CombinedOutput(); err != nil {
		return fmt.Errorf("route to the Service of kube-apiserver: %w: %s", err, out)
	}
	toAPI := []string{"-d", controlplane.ServiceAddress, "-p", "tcp", "--dport", "443", "-j", "DNAT", "--to-destination", c.HostAddress + ":" + apiServerPort}
	for _, args := range [][]string{
		append([]string{"-t", "nat", "-A", "PREROUTING"}, toAPI...),
		append([]string{"-t", "nat", "-A", "OUTPUT"}, toAPI...),
		queueNew("FORWARD"),
		queueNew("INPUT", "-s", c.Pods),
	} {
		if out, err := exec.Command(c.IPTables, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("iptables %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// admitPolicyProgram gives kube-network-policies what it reads, as a pod with its ServiceAccount has it.
func (n *Node) admitPolicyProgram(ctx context.Context) error {
	if _, _, err := n.plane.Kubectl(ctx, "", strings.NewReader(policiesYAML), "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	token, err := n.plane.ServiceAccountToken(ctx, "kube-system", controlplane.PolicyProgram)
	if err != nil {
		return err
	}
	files := map[string][]byte{"token": []byte(token), "ca.crt": n.plane.Config().CAData}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(n.dir, folderAccount, name), content, 0o600); err != nil {
			return fmt.Errorf("files of a ServiceAccount: %w", err)
		}
	}
	return nil
}
