// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// etcdImage is how the install names the image of etcd.
const etcdImage = "registry.k8s.io/etcd"

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
		k.Images = append(k.Images, types.Image{Name: "ghcr.io/sandlot-io/" + one.program, NewName: one.name, Digest: one.digest})
	}
	if name, digest, ok := strings.Cut(o.etcd, "@"); ok {
		k.Images = append(k.Images, types.Image{Name: etcdImage, NewName: name, Digest: digest})
	}
	text, err := yaml.Marshal(k)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o644); err != nil {
		return nil, err
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	return resources.AsYaml()
}
