// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// makeImages has hack/image make the images.
func makeImages(ctx context.Context, o *options) ([]*image, error) {
	work, err := os.MkdirTemp("", "sandlot-release-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the programs of images: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }() // it is in the temporary folder in any case
	out, err := output(ctx, filepath.Join(o.root, "hack", "image"), []string{"GOWORK=off"}, "go", "run", ".", "-version", o.version, "-tag", o.version,
		"-registry", o.registry, "-platforms", o.imagePlatforms, "-o", o.file(imagesFile), "-component", "", "-programs", work)
	if err != nil {
		return nil, err
	}
	var images []*image
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		tagged, digest, ok := strings.Cut(words[0], "@")
		name, cut := strings.CutSuffix(tagged, ":"+o.version)
		if !ok || !cut {
			return nil, fmt.Errorf("hack/image says %q", line)
		}
		one := &image{name: name, short: filepath.Base(name), digest: digest}
		for platform := range strings.SplitSeq(o.imagePlatforms, ",") {
			for _, held := range words[1:] {
				content, err := os.ReadFile(filepath.Join(work, strings.ReplaceAll(platform, "/", "-"), held))
				if err != nil {
					return nil, fmt.Errorf("image %s: %w", name, err)
				}
				one.programs = append(one.programs, program{name: held, platform: platform, content: content})
			}
		}
		images = append(images, one)
	}
	return images, nil
}
