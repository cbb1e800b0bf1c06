// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing/fstest"
	"time"

	"github.com/sandlot-io/sandlot/hack/image/compile"
)

// released are the programs that people run on machines of their own.
var released = []string{"kubectl-sandlot", "sandlot"}

// program is one for a platform.
type program struct {
	name, platform string
	content        []byte
	// archive is the file of the release that has it; empty for one in an image.
	archive string
}

// makePrograms compiles the programs and packs each into an archive, with the license.
func makePrograms(ctx context.Context, o *options) ([]program, error) {
	license, err := os.ReadFile(filepath.Join(o.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	date, err := o.date(ctx)
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "sandlot-release-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for what is built: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }() // it is in the temporary folder in any case
	var all []program
	for platform := range strings.SplitSeq(o.programPlatforms, ",") {
		dir := filepath.Join(work, strings.ReplaceAll(platform, "/", "-"))
		var programs []compile.Program
		for _, name := range released {
			programs = append(programs, compile.Own(name))
		}
		if err := compile.Programs(ctx, compile.Options{Root: o.root, Version: o.version, Platform: platform, Out: dir}, programs...); err != nil {
			return nil, err
		}
		for _, name := range released {
			content, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			one := program{name: name, platform: platform, content: content, archive: fmt.Sprintf("%s_%s_%s.tar.gz", name, o.version, strings.ReplaceAll(platform, "/", "_"))}
			packed, err := pack(date, name, content, license)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", one.archive, err)
			}
			if err := os.WriteFile(o.file(one.archive), packed, 0o644); err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// date is when the commit was made: the time of everything in the archives.
func (o *options) date(ctx context.Context) (time.Time, error) {
	text, err := o.git(ctx, "log", "-1", "--format=%ct")
	if err != nil {
		return time.Time{}, err
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("git log says that the commit is of %q: %w", text, err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func pack(date time.Time, name string, content, license []byte) ([]byte, error) {
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.DefaultCompression)
	if err != nil {
		return nil, err
	}
	files := tar.NewWriter(zipped)
	err = errors.Join(files.AddFS(fstest.MapFS{
		"LICENSE": {Data: license, Mode: 0o644, ModTime: date}, name: {Data: content, Mode: 0o755, ModTime: date},
	}), files.Close(), zipped.Close())
	return out.Bytes(), err
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
