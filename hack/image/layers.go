// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing/fstest"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/sandlot-io/sandlot/hack/image/compile"
)

// user is who the programs run as: the "nonroot" that many images use.
const user = "65532"

// baseLayer is what all images have beside their program. There is no shell and
// nothing else that could be run.
func baseLayer(epoch time.Time) (v1.Layer, error) {
	roots, err := certificates()
	if err != nil {
		return nil, err
	}
	passwd := "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:" + user + ":" + user + ":nonroot:/:/sbin/nologin\n"
	return layer(epoch, fstest.MapFS{
		"etc/group":                         {Mode: 0o644, Data: []byte("root:x:0:\nnonroot:x:" + user + ":\n")},
		"etc/passwd":                        {Mode: 0o644, Data: []byte(passwd)},
		"etc/ssl/certs/ca-certificates.crt": {Mode: 0o644, Data: roots},
		"tmp":                               {Mode: fs.ModeDir | fs.ModeSticky | 0o777},
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
	files := fstest.MapFS{}
	for _, program := range programs {
		content, err := os.ReadFile(filepath.Join(dir, program.Name))
		if err != nil {
			return nil, fmt.Errorf("program of an image: %w", err)
		}
		files[program.Name] = &fstest.MapFile{Mode: 0o755, Data: content}
	}
	return layer(epoch, files)
}

func layer(epoch time.Time, files fstest.MapFS) (v1.Layer, error) {
	var out bytes.Buffer
	if err := packTar(&out, files, epoch); err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }
	return tarball.LayerFromOpener(opener, tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
}
