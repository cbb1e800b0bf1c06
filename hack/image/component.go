// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// registry is where the install takes images from.
const registry = "ghcr.io/sandlot-io"

// chart says which version of the images an install runs.
const chart = "artifacts/deploy/chart/sandlot/Chart.yaml"

// component is a kustomization that others take in.
type component struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Images     []componentImage `json:"images"`
}

type componentImage struct {
	Name    string `json:"name"`
	NewName string `json:"newName"`
	Digest  string `json:"digest,omitempty"`
}

// writeComponent writes a component by which an install runs these images, by digest.
func writeComponent(file string, images []programImage) error {
	c := component{APIVersion: "kustomize.config.k8s.io/v1alpha1", Kind: "Component"}
	for _, image := range images {
		digest, err := image.index.Digest()
		if err != nil {
			return fmt.Errorf("digest of %s: %w", image.name, err)
		}
		c.Images = append(c.Images, componentImage{
			Name: registry + "/" + path.Base(image.name), NewName: image.name, Digest: digest.String(),
		})
	}
	text, err := yaml.Marshal(c)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing a component for kustomize: %w", err)
	}
	return nil
}

// installTag is the tag of the images in the install: the version that the tree becomes.
func installTag(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, chart))
	if err != nil {
		return "", fmt.Errorf("reading which images the install runs: %w", err)
	}
	var about struct{ AppVersion string }
	if err := yaml.Unmarshal(text, &about); err != nil {
		return "", fmt.Errorf("%s: %w", chart, err)
	}
	if about.AppVersion == "" {
		return "", fmt.Errorf("%s names no appVersion", chart)
	}
	return about.AppVersion, nil
}
