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

// writePlugin writes the manifest for krew, of krew.googlecontainertools.github.com/v1alpha2.
func writePlugin(o *options, programs []program) error {
	type object = map[string]any
	var platforms []object
	for _, one := range programs {
		if one.name != "kubectl-sandlot" {
			continue
		}
		content, err := os.ReadFile(o.file(one.archive))
		if err != nil {
			return err
		}
		system, processor, _ := strings.Cut(one.platform, "/")
		platforms = append(platforms, object{
			"selector": object{"matchLabels": object{"os": system, "arch": processor}},
			"uri":      downloads + o.version + "/" + one.archive, "sha256": digestOf(content), "bin": one.name,
		})
	}
	text, err := yaml.Marshal(object{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": object{"name": "sandlot"},
		"spec": object{
			"version": o.version, "homepage": "https://github.com/sandlot-io/sandlot", "platforms": platforms,
			"shortDescription": "Claim, list, use and release sandboxes",
			"description":      "Claims pre-warmed sandboxes of a cluster with Sandlot, lists them, runs commands in\nthem and gives them back.\n",
		},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", pluginFile, err)
	}
	return os.WriteFile(o.file(pluginFile), text, 0o644)
}
