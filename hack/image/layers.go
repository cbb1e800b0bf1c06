// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/sandlot-io/sandlot/hack/image/compile"
)

// user is who the programs run as: the "nonroot" that many images use.
const user = "65532"

// entry is something in a layer.
type entry struct {
	name    string
	mode    int64
	content []byte // of a file; folders have names that end in a slash
}

// baseLayer is what all images have beside their program. There is no shell and
// nothing else that could be run.
func baseLayer(epoch time.Time) (v1.Layer, error) {
	roots, err := certificates()
	if err != nil {
		return nil, err
	}
	return layer(epoch, []entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, content: []byte("root:x:0:\nnonroot:x:" + user + ":\n")},
		{name: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/:/sbin/nologin\n" +
			"nonroot:x:" + user + ":" + user + ":nonroot:/:/sbin/nologin\n")},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: roots},
		{name: "tmp/", mode: 0o1777},
	})
}

// certificates are the public CAs, as Mozilla keeps them. What belongs to a
// cluster brings its own CA; these are for admission webhooks and collectors of
// audit events or traces that are elsewhere and have none given.
func certificates() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // to be trusted in part only, which a file cannot say
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, fmt.Errorf("writing the public CAs: %w", err)
		}
	}
	return out.Bytes(), nil
}

// programLayer holds the programs of an image, at the root.
func programLayer(epoch time.Time, dir string, programs []compile.Program) (v1.Layer, error) {
	var entries []entry
	for _, program := range programs {
		content, err := os.ReadFile(filepath.Join(dir, program.Name))
		if err != nil {
			return nil, fmt.Errorf("program of an image: %w", err)
		}
		entries = append(entries, entry{name: program.Name, mode: 0o755, content: content})
	}
	return layer(epoch, entries)
}

// layer is made of entries in the order given, which all belong to root, so that
// the programs cannot change them.
func layer(epoch time.Time, entries []entry) (v1.Layer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		header := &tar.Header{
			Format: tar.FormatUSTAR, Typeflag: tar.TypeReg,
			Name: e.name, Mode: e.mode, Size: int64(len(e.content)), ModTime: epoch,
		}
		if e.name[len(e.name)-1] == '/' {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("layer: %s: %w", e.name, err)
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, fmt.Errorf("layer: %s: %w", e.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }
	l, err := tarball.LayerFromOpener(opener, tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	return l, nil
}
