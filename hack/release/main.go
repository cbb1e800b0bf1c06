// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release makes all that a release page of Sandlot has, into one folder: images as
// an OCI layout, manifests that name them by digest, programs, bills of materials,
// provenance, checksums and signatures. The same commit gives the same bytes, signatures of
// ECDSA keys apart.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/sigstore/sigstore/pkg/signature"
	"golang.org/x/mod/semver"
)

// options say what to release.
type options struct {
	// root is the folder of the main module, and out that of the release.
	root, out string
	// version is that of the release, such as v0.1.0.
	version string
	// registry begins the names of the images.
	registry string
	// platforms are those of images and programs: OS/ARCHITECTURE, comma-separated.
	imagePlatforms, programPlatforms string
	// signer has the private key to sign with; nil for none.
	signer signature.Signer
	// revision is the commit.
	revision string
	// dirty lets a tree with changes be released, which is for tests.
	dirty bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := parse(ctx, args)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	if left, err := os.ReadDir(o.out); err != nil || len(left) > 0 {
		return errors.Join(fmt.Errorf("-o: %s must be an empty folder", o.out), err)
	}
	if err := writeNotes(o); err != nil { // first, because they may be missing
		return err
	}
	images, err := makeImages(ctx, o)
	if err != nil {
		return err
	}
	programs, err := makePrograms(ctx, o)
	if err != nil {
		return err
	}
	steps := []func() error{
		func() error { return writeChart(ctx, o, images) },
		func() error { return writeManifests(ctx, o) },
		func() error { return writePlugin(o, programs) },
		func() error { return writeBills(ctx, o, images, programs) },
		func() error { return writeProvenance(ctx, o, images) },
		func() error { return writeChecksums(o.out) },
		func() error { return sign(ctx, o) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(stdout, "%s\n", o.out)
	return err
}

func parse(ctx context.Context, args []string) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("release", flag.ContinueOnError)
	fs.StringVar(&o.root, "root", "../..", "Folder of the main module.")
	fs.StringVar(&o.out, "o", "", "Folder to make, which must be empty (default _output/release/VERSION).")
	fs.StringVar(&o.version, "version", "", "Version of the release, such as v0.1.0. CHANGELOG.md must have a section of that name.")
	fs.StringVar(&o.registry, "registry", "ghcr.io/sandlot-io", "What the names of the images begin with.")
	fs.StringVar(&o.imagePlatforms, "platforms", "linux/amd64,linux/arm64", "Platforms of the images.")
	fs.StringVar(&o.programPlatforms, "program-platforms", "darwin/amd64,darwin/arm64,linux/amd64,linux/arm64", "Platforms of the programs.")
	key := fs.String("key", "", "File of the private key (PEM) to sign with; an encrypted one takes its password from COSIGN_PASSWORD. Without it nothing is signed.")
	fs.BoolVar(&o.dirty, "dirty", false, "Release a tree with changes.")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unknown argument %q", fs.Arg(0))
	}
	if !semver.IsValid(o.version) || semver.Canonical(o.version) != o.version {
		return nil, fmt.Errorf("-version: %q is not of the form v1.2.3", o.version)
	}
	var err error
	if *key != "" {
		// Before everything is made that it signs.
		if o.signer, err = loadKey(*key); err != nil {
			return nil, err
		}
	}
	if o.root, err = filepath.Abs(o.root); err != nil {
		return nil, fmt.Errorf("-root: %w", err)
	}
	if o.out, err = filepath.Abs(cmp.Or(o.out, filepath.Join(o.root, "_output", "release", o.version))); err != nil {
		return nil, fmt.Errorf("-o: %w", err)
	}
	if err := checkVersion(o); err != nil {
		return nil, err
	}
	if o.revision, err = o.git(ctx, "rev-parse", "HEAD"); err != nil {
		return nil, err
	}
	changes, err := o.git(ctx, "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if changes != "" && !o.dirty {
		return nil, fmt.Errorf("the tree has changes that are not committed:\n%s", changes)
	}
	return o, nil
}

func (o *options) git(ctx context.Context, args ...string) (string, error) {
	return output(ctx, o.root, nil, "git", args...)
}

// file is the path of a file of the release.
func (o *options) file(name string) string { return filepath.Join(o.out, name) }

// output runs a program and returns what it prints.
func output(ctx context.Context, dir string, env []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
