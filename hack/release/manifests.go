// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// installs are the manifests of a release, and the overlays that they are made of.
var installs = map[string]string{
	"install.yaml":               "default",
	"install-single.yaml":        "single",
	"install-small.yaml":         "small",
	"install-external-etcd.yaml": "external-etcd",
}

// imagesComponent is the component of the install that says which images it runs, by the
// version that the tree becomes.
const imagesComponent = "artifacts/deploy/components/images/kustomization.yaml"

// checkVersion fails where the install names another version than that of the release: who
// applies the overlays of this commit runs the images of this release.
func checkVersion(o *options) error {
	text, err := os.ReadFile(filepath.Join(o.root, imagesComponent))
	if err != nil {
		return fmt.Errorf("reading which images the install runs: %w", err)
	}
	var k types.Kustomization
	if err := yaml.Unmarshal(text, &k); err != nil {
		return fmt.Errorf("%s: %w", imagesComponent, err)
	}
	for _, one := range k.Images {
		if one.NewTag != o.version {
			return fmt.Errorf("-version: %s is to be released, and %s names %s:%s", o.version, imagesComponent, one.NewName, one.NewTag)
		}
	}
	return nil
}

// writeManifests writes the installs, with images by digest.
func writeManifests(o *options, images []*image) error {
	for file, overlay := range installs {
		text, err := render(o, overlay, images)
		if err == nil {
			err = os.WriteFile(o.file(file), text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// render builds an overlay over one of the install, as its users do.
func render(o *options, overlay string, images []*image) ([]byte, error) {
	dir, err := os.MkdirTemp(filepath.Join(o.root, "artifacts", "deploy"), ".release-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	k := types.Kustomization{Resources: []string{"../" + overlay}}
	for _, one := range images {
		k.Images = append(k.Images, types.Image{Name: "ghcr.io/sandlot-io/" + one.short, NewName: one.name, Digest: one.digest})
	}
	text, err := yaml.Marshal(k)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o644); err != nil {
		return nil, err
	}
	// In the order of "kubectl apply -k": a namespace before what is in it, which a file is
	// applied in.
	kustomize := krusty.MakeDefaultOptions()
	kustomize.Reorder = krusty.ReorderOptionLegacy
	resources, err := krusty.MakeKustomizer(kustomize).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	return resources.AsYaml()
}
