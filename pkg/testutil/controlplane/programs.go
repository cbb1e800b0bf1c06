// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

const (
	// assetsVariable names a folder with some of the programs, by a convention of
	// tests against Kubernetes.
	assetsVariable = "KUBEBUILDER_ASSETS"

	// minorVariable names the minor of Kubernetes whose programs run, such as 1.36: those in
	// the folder of that name in bin/. Without it, these are of the newest.
	minorVariable = "KUBERNETES"
)

// NodePrograms are those that every real node runs, and only real nodes run.
var NodePrograms = []string{"kubelet", "containerd", "containerd-shim-runc-v2", "ctr"}

// PolicyProgram enforces NetworkPolicies on real nodes.
const PolicyProgram = "kube-network-policies"

// programs finds programs by name.
type programs struct {
	folders []string // the first that has a program wins
	// minor is that of Kubernetes, whose folder is the first; empty is the newest.
	minor string
}

// findPrograms looks in the given folder alone or, if it is empty, in the usual
// places.
func findPrograms(binDir string) (programs, error) {
	if binDir != "" {
		abs, err := filepath.Abs(binDir)
		return programs{folders: []string{abs}}, err
	}
	root, err := program.Root()
	if err != nil {
		return programs{}, err
	}
	bin := filepath.Join(root, "bin")
	if minor := os.Getenv(minorVariable); minor != "" {
		return programs{folders: []string{filepath.Join(bin, minor), bin}, minor: minor}, nil
	}
	var found []string
	if assets := os.Getenv(assetsVariable); assets != "" {
		abs, err := filepath.Abs(assets)
		if err != nil {
			return programs{}, err
		}
		found = append(found, abs)
	}
	return programs{folders: append(found, bin)}, nil
}

// FindProgram returns the path of a program of a cluster, such as kubelet, where Options without
// BinDir look for them.
func FindProgram(name string) (string, error) {
	programs, err := findPrograms("")
	if err != nil {
		return "", err
	}
	return programs.path(name)
}

// path returns the path of a program. The parts of a cluster are of one minor; kubectl may
// be of another one.
func (p programs) path(name string) (string, error) {
	folders, hint := p.folders, "make controlplane builds it"
	switch {
	case slices.Contains(NodePrograms, name), name == PolicyProgram:
		hint = "make node-tools builds it"
	case p.minor != "" && strings.HasPrefix(name, "kube-"):
		hint = "make controlplane KUBERNETES=" + p.minor + " builds it"
	}
	if p.minor != "" && strings.HasPrefix(name, "kube") && name != "kubectl" && name != PolicyProgram {
		folders = folders[:1]
	}
	for _, dir := range folders {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is in none of %v: %s", name, folders, hint)
}
