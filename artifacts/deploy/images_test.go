// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	etcdversion "go.etcd.io/etcd/api/v3/version"
	"sigs.k8s.io/yaml"
)

// images are those that an install runs.
var images = []string{"sandlot", "sandlot-apiserver", "sandlot-controller-manager", "sandlot-etcd", "sandlot-gateway"}

// installVersion is the tag of all images, which is the version that comes next.
func installVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var about struct{ Version, AppVersion string }
	if err := yaml.Unmarshal(text, &about); err != nil {
		t.Fatal(err)
	}
	// A version is pushed once. A tag such as latest moves.
	if version := about.AppVersion; !regexp.MustCompile(`^v\d+\.\d+\.\d+$`).MatchString(version) || version != "v"+about.Version {
		t.Errorf("the chart has the version %s, and runs %s", about.Version, version)
	}
	return about.AppVersion
}

// What is applied names each image by registry and version.
func TestImages(t *testing.T) {
	version := installVersion(t)
	each(t, func(t *testing.T, objects manifests) {
		for program, pod := range pods(objects) {
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				name := strings.TrimSuffix(strings.TrimPrefix(c.Image, "ghcr.io/sandlot-io/"), ":"+version)
				if c.Image != "ghcr.io/sandlot-io/"+name+":"+version || !slices.Contains(images, name) {
					t.Errorf("%s runs %s", program, c.Image)
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
