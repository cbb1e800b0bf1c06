// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// programImage is an image for every platform.
type programImage struct {
	// name is that without tag.
	name  string
	index v1.ImageIndex
	// platforms are what index consists of, in the order of options.platforms.
	platforms []v1.Image
}

// assemble makes all images from what compileAll left in dir.
func assemble(o options, dir string) ([]programImage, error) {
	base, err := baseLayer(o.epoch)
	if err != nil {
		return nil, err
	}
	var all []programImage
	for _, content := range contents {
		whole := programImage{
			name:  o.registry + "/" + content.name,
			index: mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		}
		labels := map[string]string{
			"org.opencontainers.image.title":       content.name,
			"org.opencontainers.image.description": content.description,
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.source":      "https://github.com/sandlot-io/sandlot",
			"org.opencontainers.image.version":     o.version,
		}
		if o.revision != "" {
			labels["org.opencontainers.image.revision"] = o.revision
		}
		for _, platform := range o.platforms {
			layer, err := programLayer(o.epoch, programDir(dir, platform), content.programs)
			if err != nil {
				return nil, err
			}
			one, err := platformImage(o, platform, content.programs[0].Name, labels, base, layer)
			if err != nil {
				return nil, fmt.Errorf("image of %s for %s: %w", content.name, platform, err)
			}
			whole.platforms = append(whole.platforms, one)
			whole.index = mutate.AppendManifests(whole.index,
				mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{Platform: &platform}})
		}
		all = append(all, whole)
	}
	return all, nil
}

func platformImage(o options, platform v1.Platform, program string, labels map[string]string, layers ...v1.Layer) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, layers...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Variant = platform.OS, platform.Architecture, platform.Variant
	file.Created = v1.Time{Time: o.epoch}
	for i := range file.History {
		file.History[i] = v1.History{Created: file.Created, CreatedBy: "hack/image"}
	}
	file.Config = v1.Config{
		User:       user + ":" + user,
		Entrypoint: []string{"/" + program},
		WorkingDir: "/",
		Env:        []string{"PATH=/"},
		Labels:     labels,
	}
	return mutate.ConfigFile(image, file)
}
