// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	// shipped is the namespace of the install by kustomize.
	shipped = "sandlot-system"
	// moved stands for the namespace of the release, and is part of nothing else.
	moved = "namespace-of-the-release"
)

// rendering is what kustomize makes of the install with a choice.
type rendering struct {
	of      *choice
	objects []object
}

// object is one of them.
type object struct {
	// source is where the object is in artifacts/deploy, such as bases/access/users.yaml,
	// and file where it is in the chart.
	source, file string
	tree         *mapping
}

// render builds the bases with a choice in the namespace of the release.
func render(deploy string, c *choice) (rendering, error) {
	here, err := build(deploy, c, shipped)
	if err != nil {
		return rendering{}, err
	}
	there, err := build(deploy, c, moved)
	if err != nil {
		return rendering{}, err
	}
	if here.Size() != there.Size() {
		return rendering{}, fmt.Errorf("%d objects have become %d in another namespace", here.Size(), there.Size())
	}
	r := rendering{of: c}
	for i, res := range there.Resources() {
		if res.GetKind() == "Namespace" && res.GetName() == moved {
			continue // it is Helm's
		}
		origin, err := res.GetOrigin()
		if err != nil {
			return rendering{}, err
		}
		if err := res.SetOrigin(nil); err != nil {
			return rendering{}, err
		}
		text, err := res.RNode.String()
		if err != nil {
			return rendering{}, err
		}
		var document yamlv3.Node
		if err := yamlv3.Unmarshal([]byte(text), &document); err != nil {
			return rendering{}, err
		}
		tree := decode(document.Content[0]).(*mapping)
		// Kustomize gives a namespace to objects of kinds that it does not know.
		if was := here.Resources()[i]; was.GetName() == res.GetName() && was.GetNamespace() == "" {
			tree.at("metadata").remove("namespace")
		}
		if err := editObject(tree); err != nil {
			return rendering{}, fmt.Errorf("%s: %w", origin.Path, err)
		}
		if c.edit != nil {
			c.edit(tree)
		}
		folder, file := path.Split(origin.Path)
		file = path.Join(path.Base(folder), file)
		r.objects = append(r.objects, object{source: path.Join(path.Base(path.Dir(path.Clean(folder))), file), file: file, tree: tree})
	}
	return r, nil
}

// build runs kustomize on two kustomizations as a user has them: the install, and what has a
// namespace of its own over that.
func build(deploy string, c *choice, namespace string) (resmap.ResMap, error) {
	dir, err := os.MkdirTemp("", "sandlot-chart-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is in the temporary folder in any case
	to, err := relative(dir, deploy)
	if err != nil {
		return nil, err
	}
	install := types.Kustomization{}
	if namespace != shipped {
		install.Namespace = namespace
	}
	if c.overlay != "" {
		install.Resources = []string{path.Join("..", to, c.overlay)}
	} else {
		for _, base := range bases {
			install.Resources = append(install.Resources, path.Join("..", to, "bases", base))
		}
		for _, component := range append(slices.Clone(c.components), always...) {
			install.Components = append(install.Components, path.Join("..", to, "components", component))
		}
	}
	top := types.Kustomization{Resources: []string{"install"}, BuildMetadata: []string{types.OriginAnnotations}}
	for _, component := range c.over {
		top.Components = append(top.Components, path.Join(to, "components", component))
	}
	for folder, k := range map[string]types.Kustomization{dir: top, filepath.Join(dir, "install"): install} {
		text, err := yaml.Marshal(k)
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), text, 0o644); err != nil {
			return nil, err
		}
	}
	return krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
}

// relative is the way from one folder to another. Both ends are real ones to kustomize.
func relative(from, to string) (string, error) {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return "", err
	}
	if to, err = filepath.Abs(to); err != nil {
		return "", err
	}
	if to, err = filepath.EvalSymlinks(to); err != nil {
		return "", err
	}
	return filepath.Rel(from, to)
}

// inRelease turns the namespace of the release in a text into what Helm fills in.
func inRelease(text string) string {
	return strings.ReplaceAll(text, moved, "{{ .Release.Namespace }}")
}
