// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
)

// Label is on all real nodes, and the key of the taint of Options.Tainted. Its value is "true".
const Label = "sandlot.io/real"

// Options say what a node is like.
type Options struct {
	// Name is that of the node and of its folder.
	Name string
	// Images are archives of images that containers can be run from.
	Images []string
	// Tainted keeps pods away that do not tolerate Label, where there are simulated nodes too.
	Tainted bool
	// NetworkPolicies lets pods reach kube-apiserver at controlplane.ServiceAddress, and has
	// kube-network-policies enforce NetworkPolicies, also for what pods send to their own node.
	NetworkPolicies bool
}

// testsVariable says what becomes of tests where there can be no real node: they are skipped, or fail if its
// value is testsRequired.
const (
	testsVariable = "SANDLOT_TEST_NODES"
	testsRequired = "required"
)

// Required reports whether tests fail where there can be no real node, in place of being skipped.
func Required() bool { return os.Getenv(testsVariable) == testsRequired }

// cniFolders are where distributions put the plugins for the network of pods.
var cniFolders = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

// packages are those of Debian that have the tools that are not built here.
const packages = "runc containernetworking-plugins iproute2 iptables busybox-static"

// tools are the paths of all programs of a node.
type tools struct {
	// programs are those that make node-tools builds.
	programs          map[string]string
	runc, ip, busybox string
	// cni is the folder of plugins.
	cni string
	// iptables is empty without NetworkPolicies.
	iptables string
}

// CheckSupported returns an error if this machine cannot run real nodes: they need Linux, root, namespaces and
// programs.
func CheckSupported(o Options) error {
	if err := checkNamespaces(); err != nil {
		return err
	}
	found, err := findTools(o)
	if err != nil || !o.NetworkPolicies {
		return err
	}
	return checkFilters(found.iptables)
}

func findTools(o Options) (*tools, error) {
	found := &tools{programs: map[string]string{}}
	names := controlplane.NodePrograms
	if o.NetworkPolicies {
		names = append(slices.Clone(names), controlplane.PolicyProgram)
	}
	for _, name := range names {
		path, err := controlplane.FindProgram(name)
		if err != nil {
			return nil, err
		}
		found.programs[name] = path
	}
	var missing []string
	wanted := map[string]*string{"runc": &found.runc, "ip": &found.ip, "busybox": &found.busybox}
	if o.NetworkPolicies {
		wanted["iptables"] = &found.iptables
	}
	for name, path := range wanted {
		var err error
		if *path, err = exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	for _, folder := range cniFolders {
		if _, err := os.Stat(folder + "/ptp"); err == nil {
			found.cni = folder
			break
		}
	}
	if found.cni == "" {
		missing = append(missing, "the CNI plugins")
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s missing: apt-get install %s", strings.Join(missing, ", "), packages)
	}
	return found, nil
}

// errUnsupported is why other systems have no real nodes.
var errUnsupported = errors.New("real nodes need Linux and root")
