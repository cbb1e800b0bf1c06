// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	etcdversion "go.etcd.io/etcd/api/v3/version"
	"sigs.k8s.io/yaml"
)

// imagesComponent is the one place with names and tags of images.
var imagesComponent = filepath.Join("components", "images", "kustomization.yaml")

// tag is that of a version, which is pushed once. A tag such as latest moves.
var tag = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// imageNames returns what the install calls images, and the tag that all of them have.
func imageNames(t *testing.T) (names []string, version string) {
	t.Helper()
	text, err := os.ReadFile(imagesComponent)
	if err != nil {
		t.Fatal(err)
	}
	var component struct {
		Images []struct{ Name, NewName, NewTag string }
	}
	if err := yaml.Unmarshal(text, &component); err != nil {
		t.Fatal(err)
	}
	for _, image := range component.Images {
		names = append(names, image.Name)
		version = component.Images[0].NewTag
		if image.NewName != "ghcr.io/sandlot-io/"+image.Name || image.NewTag != version || !tag.MatchString(version) {
			t.Errorf("%s: %+v", imagesComponent, image)
		}
	}
	return names, version
}

// No manifest names an image but by a name that the one component knows, and no other
// kustomization says what becomes of it.
func TestImagesHaveOnePlace(t *testing.T) {
	names, _ := imageNames(t)
	image := regexp.MustCompile(`(?m)^\s*(?:- )?["']?image["']?:\s*([^\s#]*)`)
	change := regexp.MustCompile(`(?m)^\s*(?:- )?["']?(images|newTag|newName|digest)["']?:`)
	found := 0
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && d.Name() == "chart" {
				return fs.SkipDir // has values in the place of these
			}
			return err
		}
		if filepath.Ext(file) != ".yaml" || file == imagesComponent {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, match := range image.FindAllStringSubmatch(string(text), -1) {
			if found++; !slices.Contains(names, match[1]) {
				t.Errorf("%s runs %q, which %s does not know", file, match[1], imagesComponent)
			}
		}
		if match := change.FindString(string(text)); match != "" {
			t.Errorf("%s has %q", file, match)
		}
		return nil
	})
	if err != nil || found < 4 {
		t.Errorf("%d images in all: %v", found, err)
	}
}

// What is applied names each image by registry and version.
func TestImages(t *testing.T) {
	names, version := imageNames(t)
	each(t, func(t *testing.T, objects manifests) {
		for _, w := range workloads(objects) {
			for _, c := range append(w.template.Spec.InitContainers, w.template.Spec.Containers...) {
				name := strings.TrimSuffix(strings.TrimPrefix(c.Image, "ghcr.io/sandlot-io/"), ":"+version)
				if c.Image != "ghcr.io/sandlot-io/"+name+":"+version || !slices.Contains(names, name) {
					t.Errorf("%s runs %s", w, c.Image)
				}
			}
		}
	})
}

// The image of etcd is made of the minor version that the embedded one has, and that the
// tests run.
func TestEtcdVersion(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "hack", "etcd", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\s*go\.etcd\.io/etcd/server/v3 v(\S+)`).FindSubmatch(text)
	if found == nil {
		t.Fatal("hack/etcd/go.mod requires no etcd")
	}
	minor := strings.Join(strings.Split(etcdversion.Version, ".")[:2], ".") + "."
	if installed := string(found[1]); !strings.HasPrefix(installed, minor) {
		t.Errorf("etcd %s is installed, and %s is embedded", installed, etcdversion.Version)
	}
}
