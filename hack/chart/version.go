// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

// versionOf returns the tag that our images have in the install.
func versionOf(deploy string) (string, error) {
	file := filepath.Join(deploy, "components", "images", "kustomization.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var k types.Kustomization
	if err := yaml.Unmarshal(text, &k); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	version := ""
	for _, image := range k.Images {
		if !strings.HasPrefix(image.NewName, registry) {
			continue
		}
		if version != "" && image.NewTag != version {
			return "", fmt.Errorf("%s: images have the tags %s and %s", file, version, image.NewTag)
		}
		version = image.NewTag
	}
	if version == "" {
		return "", fmt.Errorf("%s has no image of ours", file)
	}
	return version, nil
}

var (
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: .*$`)
)

// withVersion returns a Chart.yaml of another version. That of a chart is semantic.
func withVersion(file, version string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	semantic, ok := strings.CutPrefix(version, "v")
	if !ok {
		semantic = "0.0.0-" + version
	}
	text = chartVersion.ReplaceAll(text, []byte("version: "+semantic))
	return appVersion.ReplaceAll(text, []byte("appVersion: "+version)), nil
}
