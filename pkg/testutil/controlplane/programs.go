// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
)

// assetsVariable names a folder with some of the programs, by a convention of
// tests against Kubernetes.
const assetsVariable = "KUBEBUILDER_ASSETS"

// programs finds programs by name.
type programs []string // folders, the first that has a program wins

// findPrograms looks in the given folder alone or, if it is empty, in the usual
// places.
func findPrograms(binDir string) (programs, error) {
	if binDir != "" {
		abs, err := filepath.Abs(binDir)
		return programs{abs}, err
	}
	var found programs
	if assets := os.Getenv(assetsVariable); assets != "" {
		abs, err := filepath.Abs(assets)
		if err != nil {
			return nil, err
		}
		found = append(found, abs)
	}
	root, err := RepositoryRoot()
	if err != nil {
		return nil, err
	}
	return append(found, filepath.Join(root, "bin")), nil
}

// path returns the path of a program.
func (p programs) path(name string) (string, error) {
	for _, dir := range p {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is in none of %v: make controlplane builds it", name, []string(p))
}

// RepositoryRoot returns the folder of the go.mod above the working directory.
func RepositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("there is no go.mod in %s or above", start)
		}
	}
}
