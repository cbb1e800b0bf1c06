// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// pluginFile is the manifest of kubectl-sandlot for krew: kubectl krew install --manifest.
const pluginFile = "krew-sandlot.yaml"

// downloads is where the files of a release are.
const downloads = "https://github.com/sandlot-io/sandlot/releases/download/"

// plugin is the manifest of a plugin, of krew.googlecontainertools.github.com/v1alpha2.
type plugin struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   pluginMetadata `json:"metadata"`
	Spec       pluginSpec     `json:"spec"`
}

type pluginMetadata struct {
	Name string `json:"name"`
}

type pluginSpec struct {
	Version          string           `json:"version"`
	Homepage         string           `json:"homepage"`
	ShortDescription string           `json:"shortDescription"`
	Description      string           `json:"description"`
	Platforms        []pluginPlatform `json:"platforms"`
}

type pluginPlatform struct {
	Selector pluginSelector `json:"selector"`
	URI      string         `json:"uri"`
	SHA256   string         `json:"sha256"`
	Bin      string         `json:"bin"`
}

type pluginSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// writePlugin writes the manifest for krew.
func writePlugin(o *options, programs []program) error {
	p := plugin{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: pluginMetadata{"sandlot"}, Spec: pluginSpec{
		Version: o.version, Homepage: "https://github.com/sandlot-io/sandlot",
		ShortDescription: "Claim, list, use and release sandboxes",
		Description:      "Claims pre-warmed sandboxes of a cluster with Sandlot, lists them, runs commands in\nthem and gives them back.\n",
	}}
	for _, one := range programs {
		if one.name != "kubectl-sandlot" {
			continue
		}
		content, err := os.ReadFile(o.file(one.archive))
		if err != nil {
			return err
		}
		system, processor, _ := strings.Cut(one.platform, "/")
		p.Spec.Platforms = append(p.Spec.Platforms, pluginPlatform{
			Selector: pluginSelector{map[string]string{"os": system, "arch": processor}},
			URI:      downloads + o.version + "/" + one.archive, SHA256: digestOf(content), Bin: one.name,
		})
	}
	text, err := yaml.Marshal(p)
	if err != nil {
		return fmt.Errorf("%s: %w", pluginFile, err)
	}
	return os.WriteFile(o.file(pluginFile), text, 0o644)
}
