// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// imagesFile is the OCI layout with all images.
const imagesFile = "sandlot-images.tar"

// image is one of the release.
type image struct {
	// name is that without tag and digest, and short that without the registry.
	name, short string
	// digest is that of its index.
	digest string
	// programs are what it holds, by platform.
	programs []program
}

// makeImages has hack/image make the images, and looks into them.
func makeImages(ctx context.Context, o *options) ([]*image, error) {
	out, err := output(ctx, filepath.Join(o.root, "hack", "image"), []string{"GOWORK=off"}, "go", "run", ".",
		"-version", o.version, "-tag", o.version, "-registry", o.registry, "-platforms", o.imagePlatforms, "-o", o.file(imagesFile), "-component", "")
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "sandlot-release-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the images: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }() // it is in the temporary folder in any case
	if err := unpack(o.file(imagesFile), work); err != nil {
		return nil, err
	}
	index, err := layout.ImageIndexFromPath(work)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", imagesFile, err)
	}
	var images []*image
	for line := range strings.Lines(out) {
		tagged, digest, ok := strings.Cut(strings.TrimSpace(line), "@")
		name, cut := strings.CutSuffix(tagged, ":"+o.version)
		if !ok || !cut {
			return nil, fmt.Errorf("hack/image says %q", line)
		}
		one := &image{name: name, short: filepath.Base(name), digest: digest}
		if err := one.look(index); err != nil {
			return nil, fmt.Errorf("image %s: %w", name, err)
		}
		images = append(images, one)
	}
	return images, nil
}

// look finds the programs in an image.
func (i *image) look(all v1.ImageIndex) error {
	hash, err := v1.NewHash(i.digest)
	if err != nil {
		return err
	}
	index, err := all.ImageIndex(hash)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, one := range manifest.Manifests {
		platform, err := index.Image(one.Digest)
		if err != nil {
			return err
		}
		if err := i.addPrograms(one.Platform.String(), platform); err != nil {
			return fmt.Errorf("%s: %w", one.Platform, err)
		}
	}
	return nil
}

// addPrograms adds those in the last layer of an image for a platform.
func (i *image) addPrograms(platform string, one v1.Image) (err error) {
	layers, err := one.Layers()
	if err != nil {
		return err
	}
	last, err := layers[len(layers)-1].Uncompressed()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, last.Close()) }()
	files := tar.NewReader(last)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		i.programs = append(i.programs, program{name: header.Name, platform: platform, content: content})
	}
}

// unpack writes the files of an archive into a folder.
func unpack(archive, dir string) (err error) {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	to, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	files := tar.NewReader(file)
	for {
		header, err := files.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("unpacking %s: %w", archive, err)
		case header.Typeflag == tar.TypeDir:
			err = to.Mkdir(strings.TrimSuffix(header.Name, "/"), fs.FileMode(0o755))
		default:
			err = writeTo(to, header.Name, files)
		}
		if err != nil {
			return fmt.Errorf("unpacking %s: %w", archive, err)
		}
	}
}

func writeTo(to *os.Root, name string, content io.Reader) error {
	file, err := to.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
