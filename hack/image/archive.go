// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
func writeTar(out, dir string, epoch time.Time) (err error) {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	file, err := os.CreateTemp(filepath.Dir(out), ".image-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("writing %s: %w", out, err), file.Close(), os.Remove(file.Name()))
		}
	}()
	w := tar.NewWriter(file)
	root := os.DirFS(dir)
	if err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		return addToTar(w, root, name, d, epoch)
	}); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := file.Chmod(0o644); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), out)
}

func addToTar(w *tar.Writer, root fs.FS, name string, d fs.DirEntry, epoch time.Time) error {
	if d.IsDir() {
		return w.WriteHeader(&tar.Header{
			Format: tar.FormatUSTAR, Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: epoch,
		})
	}
	content, err := fs.ReadFile(root, name)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{
		Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: epoch,
	}); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}
