// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// imagesVariable names a folder where the tests of hack/image keep the archive of images of these
// sources. CI sets it.
const imagesVariable = "SANDLOT_IMAGES"

// ourImages are those of Sandlot.
type ourImages struct {
	archive string
	// names are those in the archive, by the last part.
	names map[string]string
}

// makeImages has hack/image make the images for this machine.
func makeImages(ctx context.Context, dir string) (*ourImages, error) {
	archive := filepath.Join(cmp.Or(os.Getenv(imagesVariable), dir), "sandlot.tar")
	// go test may not have run what it remembers the result of.
	if _, err := os.Stat(archive); errors.Is(err, fs.ErrNotExist) {
		root, err := program.Root()
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, "go", "run", "-trimpath", ".", "-platforms=linux/"+runtime.GOARCH, "-o="+archive, "-component=")
		cmd.Dir = filepath.Join(root, "hack", "image")
		cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("making images: %w: %s", err, out)
		}
	}
	names, err := namesIn(archive)
	return &ourImages{archive: archive, names: names}, err
}

// namesIn returns the names of the images in an archive, by their last part without the tag.
func namesIn(archive string) (map[string]string, error) {
	file, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for entries := tar.NewReader(file); ; {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s has no index.json", archive)
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", archive, err)
		}
		if path.Clean(entry.Name) != "index.json" {
			continue
		}
		var index struct {
			Manifests []struct{ Annotations map[string]string }
		}
		if err := json.NewDecoder(entries).Decode(&index); err != nil {
			return nil, fmt.Errorf("reading %s of %s: %w", entry.Name, archive, err)
		}
		names := map[string]string{}
		for _, manifest := range index.Manifests {
			name := manifest.Annotations["io.containerd.image.name"]
			last, _, _ := strings.Cut(path.Base(name), ":")
			names[last] = name
		}
		return names, nil
	}
}
