// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"testing/fstest"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// writeArchive writes all images as an OCI layout in a tar file, named so that
// containerd, and whatever uses it, knows what they are called. A list for
// Docker's older image store is put beside it, as docker save does: it cannot
// hold several platforms under one name, so they have theirs at the end there.
func writeArchive(o options, images []programImage, work string) error {
	dir := filepath.Join(work, "layout")
	all := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		all = mutate.AppendManifests(all, mutate.IndexAddendum{Add: image.index, Descriptor: v1.Descriptor{
			Annotations: map[string]string{
				"io.containerd.image.name":          image.name + ":" + o.tag,
				"org.opencontainers.image.ref.name": image.name + ":" + o.tag,
			},
		}})
	}
	if _, err := layout.Write(dir, all); err != nil {
		return fmt.Errorf("writing the OCI layout: %w", err)
	}
	list, err := dockerList(o, images)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), list, 0o644); err != nil {
		return fmt.Errorf("writing the list for docker: %w", err)
	}
	return writeTar(o.out, dir, o.epoch)
}

// dockerImage is an entry of manifest.json of "docker save".
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func dockerList(o options, images []programImage) ([]byte, error) {
	var list []dockerImage
	for _, image := range images {
		for i, one := range image.platforms {
			manifest, err := one.Manifest()
			if err != nil {
				return nil, fmt.Errorf("manifest of %s: %w", image.name, err)
			}
			entry := dockerImage{
				Config:   blob(manifest.Config.Digest),
				RepoTags: []string{image.name + ":" + o.tag + "-" + o.platforms[i].Architecture},
			}
			for _, layer := range manifest.Layers {
				entry.Layers = append(entry.Layers, blob(layer.Digest))
			}
			list = append(list, entry)
		}
	}
	out, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("list for docker: %w", err)
	}
	return out, nil
}

func blob(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }

// writeTar writes what is in dir, sorted by name, to a file that appears at once
// and whole.
func writeTar(out, dir string, epoch time.Time) error {
	files := fstest.MapFS{}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		files[name] = &fstest.MapFile{Data: content, Mode: 0o644}
		return err
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	var text bytes.Buffer
	err = errors.Join(packTar(&text, files, epoch), os.MkdirAll(filepath.Dir(out), 0o755), os.WriteFile(out+".new", text.Bytes(), 0o644))
	if err == nil {
		err = os.Rename(out+".new", out)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	return nil
}

// packTar writes files and the folders that they are in, all of one time, which belong to root:
// so programs cannot change them.
func packTar(out io.Writer, files fstest.MapFS, epoch time.Time) error {
	w := tar.NewWriter(out)
	for name, file := range files {
		file.ModTime = epoch
		for dir := path.Dir(name); dir != "." && files[dir] == nil; dir = path.Dir(dir) {
			files[dir] = &fstest.MapFile{Mode: fs.ModeDir | 0o755, ModTime: epoch}
		}
	}
	return errors.Join(w.AddFS(files), w.Close())
}
