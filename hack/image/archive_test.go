// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// The archive is read with the standard library alone, not with what wrote it.

// archive is what is in a tar file by name.
type archive map[string][]byte

func readArchive(t *testing.T, file string) archive {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := archive{}
	for header, content := range readTar(t, f) {
		files[header.Name] = content
	}
	return files
}

func readTar(t *testing.T, r io.Reader) func(yield func(*tar.Header, []byte) bool) {
	return func(yield func(*tar.Header, []byte) bool) {
		t.Helper()
		reader := tar.NewReader(r)
		for {
			header, err := reader.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(reader)
			if err != nil {
				t.Fatal(err)
			}
			if !yield(header, content) {
				return
			}
		}
	}
}

// descriptor says where something is, and what it is.
type descriptor struct {
	MediaType   string
	Digest      string
	Size        int64
	Annotations map[string]string
	Platform    struct{ OS, Architecture string }
}

// index lists images, or the platforms of one.
type index struct {
	MediaType string
	Manifests []descriptor
}

// manifest is an image for one platform.
type manifest struct {
	MediaType string
	Config    descriptor
	Layers    []descriptor
}

// config says how to run an image.
type config struct {
	OS, Architecture string
	Created          time.Time
	Config           struct {
		User       string
		Entrypoint []string
		Cmd, Env   []string
		Labels     map[string]string
	}
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	}
}

// blob returns what a descriptor points at, if it is what it is said to be.
func (a archive) blob(t *testing.T, d descriptor) []byte {
	t.Helper()
	content, ok := a["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
	if !ok {
		t.Fatalf("%s is not in the archive", d.Digest)
	}
	if got := digest(content); got != d.Digest || int64(len(content)) != d.Size {
		t.Fatalf("%s of %d bytes is %s of %d", d.Digest, d.Size, got, len(content))
	}
	return content
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func decode[T any](t *testing.T, content []byte) (value T) {
	t.Helper()
	if err := json.Unmarshal(content, &value); err != nil {
		t.Fatalf("%v\n%s", err, content)
	}
	return value
}

// image is an image for one platform.
type image struct {
	name, platform string
	digest         string
	config         config
	layers         [][]byte // uncompressed
}

// images returns all images in the archive, which is an OCI layout.
func (a archive) images(t *testing.T) []image {
	t.Helper()
	if layout := decode[struct{ ImageLayoutVersion string }](t, a["oci-layout"]); layout.ImageLayoutVersion != "1.0.0" {
		t.Errorf("oci-layout: %v", layout)
	}
	const mediaIndex, mediaManifest = "application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.manifest.v1+json"
	var all []image
	for _, named := range decode[index](t, a["index.json"]).Manifests {
		if named.MediaType != mediaIndex {
			t.Fatalf("%v is not an image for several platforms", named)
		}
		for _, one := range decode[index](t, a.blob(t, named)).Manifests {
			if one.MediaType != mediaManifest {
				t.Fatalf("%v is not an image", one)
			}
			m := decode[manifest](t, a.blob(t, one))
			i := image{
				name:     named.Annotations["io.containerd.image.name"],
				platform: one.Platform.OS + "/" + one.Platform.Architecture,
				digest:   one.Digest,
				config:   decode[config](t, a.blob(t, m.Config)),
			}
			for n, layer := range m.Layers {
				content := unzip(t, a.blob(t, layer))
				if got := digest(content); got != i.config.RootFS.DiffIDs[n] {
					t.Errorf("%s: layer %d is %s", i.name, n, got)
				}
				i.layers = append(i.layers, content)
			}
			all = append(all, i)
		}
	}
	return all
}

func unzip(t *testing.T, content []byte) []byte {
	t.Helper()
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
