// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// installs are the manifests of a release, and the values that the chart has in each.
var installs = map[string]string{
	"install.yaml":        "",
	"install-single.yaml": "etcd.mode=embedded",
	"install-small.yaml":  "etcd.mode=embedded,profile=small",
	"install-external-etcd.yaml": "etcd.mode=external,etcd.external.endpoints={https://etcd-0.example.com:2379," +
		"https://etcd-1.example.com:2379,https://etcd-2.example.com:2379}",
}

// chartAbout says which version the tree becomes.
const chartAbout = "artifacts/deploy/chart/sandlot/Chart.yaml"

// checkVersion fails where the chart names another version than that of the release: who
// installs from this commit runs the images of this release.
func checkVersion(o *options) error {
	text, err := os.ReadFile(filepath.Join(o.root, chartAbout))
	if err != nil {
		return fmt.Errorf("reading the version of the chart: %w", err)
	}
	var about struct{ Version, AppVersion string }
	if err := yaml.Unmarshal(text, &about); err != nil {
		return fmt.Errorf("%s: %w", chartAbout, err)
	}
	if about.AppVersion != o.version || "v"+about.Version != o.version {
		return fmt.Errorf("-version: %s is to be released, and %s has the version %s and the appVersion %s", o.version, chartAbout, about.Version, about.AppVersion)
	}
	return nil
}

// writeManifests renders the installs from the package of the chart, which names images by
// digest.
func writeManifests(ctx context.Context, o *options) error {
	helm, err := output(ctx, o.root, nil, filepath.Join(o.root, "hack", "tool.sh"), "helm")
	if err != nil {
		return err
	}
	for file, values := range installs {
		text, err := output(ctx, o.out, nil, helm, "template", chartName, chartFile(o), "--namespace", "sandlot-system", "--set", "static=true,"+values)
		if err == nil {
			err = os.WriteFile(o.file(file), []byte(text+"\n"), 0o644)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}
