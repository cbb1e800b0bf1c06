// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
)

// chartName is that of the Helm chart, and of the folder in its package.
const chartName = "sandlot"

// imageValues are where the chart has the values of an image. An install does not run that of
// the runtime.
var imageValues = map[string][]string{
	"sandlot":                    {"backup", "test"},
	"sandlot-apiserver":          {"apiServer"},
	"sandlot-controller-manager": {"controllerManager"},
	"sandlot-etcd":               {"etcd"},
	"sandlot-gateway":            {"gateway"},
	"sandlot-runtime":            {},
}

// chartFile is the package of the chart, as Helm calls it.
func chartFile(o *options) string {
	return chartName + "-" + strings.TrimPrefix(o.version, "v") + ".tgz"
}

// writeChart packs the Helm chart, with images by digest. "helm package" does not do, because
// it packs the times of the files.
func writeChart(ctx context.Context, o *options, images []*image) error {
	date, err := o.date(ctx)
	if err != nil {
		return err
	}
	packed, err := packChart(o, images, date)
	if err == nil {
		err = os.WriteFile(o.file(chartFile(o)), packed, 0o644)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", chartFile(o), err)
	}
	return nil
}

func packChart(o *options, images []*image, date time.Time) ([]byte, error) {
	chart := os.DirFS(filepath.Join(o.root, "artifacts", "deploy", "chart", chartName))
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	files := tar.NewWriter(zipped)
	err = fs.WalkDir(chart, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(chart, name)
		if err != nil {
			return err
		}
		if name == "values.yaml" {
			content, err = withDigests(content, o, images)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		header := &tar.Header{
			Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: path.Join(chartName, name), Mode: 0o644, Size: int64(len(content)), ModTime: date,
		}
		if err := files.WriteHeader(header); err != nil {
			return err
		}
		_, err = files.Write(content)
		return err
	})
	if err := errors.Join(err, files.Close(), zipped.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// withDigests returns the values of the chart with the images of the release.
func withDigests(values []byte, o *options, images []*image) ([]byte, error) {
	changes := map[string]string{"image.registry": o.registry}
	for _, one := range images {
		of, ok := imageValues[path.Base(one.name)]
		if !ok {
			return nil, fmt.Errorf("no values are for image %s: say which in imageValues", one.name)
		}
		for _, program := range of {
			changes[program+".image.digest"] = one.digest
		}
	}
	return setStrings(values, changes)
}

// setStrings changes strings of a YAML document, by their paths, and nothing else.
func setStrings(text []byte, changes map[string]string) ([]byte, error) {
	document, err := kyaml.Parse(string(text))
	if err != nil {
		return nil, err
	}
	for at, value := range changes {
		keys := strings.Split(at, ".")
		last := len(keys) - 1
		parent, err := document.Pipe(kyaml.Lookup(keys[:last]...))
		if err != nil {
			return nil, err
		}
		if parent == nil || parent.Field(keys[last]) == nil {
			return nil, fmt.Errorf("there is no %s", at)
		}
		if err := parent.PipeE(kyaml.SetField(keys[last], kyaml.NewStringRNode(value))); err != nil {
			return nil, err
		}
	}
	edited, err := document.String()
	return []byte(edited), err
}
