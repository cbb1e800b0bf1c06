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
	// name is that without tag and digest, and program what it runs.
	name, program string
	// digest is that of its index.
	digest string
	// programs are what it holds, by platform.
	programs []program
}

// makeImages has hack/image make the images, and looks into them.
func makeImages(ctx context.Context, o *options) ([]*image, error) {
	out, err := output(ctx, filepath.Join(o.root, "hack", "image"), []string{"GOWORK=off"}, "go", "run", ".",
		"-version", o.version, "-tag", o.version, "-registry", o.registry, "-platforms", o.imagePlatforms, "-o", o.file(imagesFile))
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
		one := &image{name: name, program: filepath.Base(name), digest: digest}
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
		content, err := programIn(platform, i.program)
		if err != nil {
			return fmt.Errorf("%s: %w", one.Platform, err)
		}
		i.programs = append(i.programs, program{name: i.program, platform: one.Platform.String(), content: content})
	}
	return nil
}

// programIn reads a program from the last layer of an image.
func programIn(one v1.Image, name string) ([]byte, error) {
	layers, err := one.Layers()
	if err != nil {
		return nil, err
	}
	last, err := layers[len(layers)-1].Uncompressed()
	if err != nil {
		return nil, err
	}
	files := tar.NewReader(last)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.Join(fmt.Errorf("its last layer has no %s", name), last.Close())
		}
		if err != nil {
			return nil, errors.Join(err, last.Close())
		}
		if header.Name == name {
			content, err := io.ReadAll(files)
			return content, errors.Join(err, last.Close())
		}
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
