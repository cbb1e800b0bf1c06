// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image makes the container images of Sandlot without a container
// engine, for every platform, all in one archive. The same sources give the same
// bytes, on any machine and at any time.
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
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

type options struct {
	// root is the folder of the main module.
	root string
	// out is the archive to write, component the file for kustomize, and programs the folder to
	// keep the programs in; empty for none.
	out, component, programs string
	// registry begins the names of the images, and tag ends them.
	registry, tag string
	// version is what the programs call themselves.
	version   string
	platforms []v1.Platform
	// epoch is the time of everything in the images.
	epoch time.Time
	// revision is the commit, if it is known.
	revision string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := parse(ctx, args)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "sandlot-image-")
	if err != nil {
		return fmt.Errorf("making a folder for what is built: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }() // it is in the temporary folder in any case

	programs := cmp.Or(o.programs, work)
	if err := compileAll(ctx, o, programs); err != nil {
		return err
	}
	images, err := assemble(o, programs)
	if err != nil {
		return err
	}
	if err := writeArchive(o, images, work); err != nil {
		return err
	}
	if o.component != "" {
		if err := writeComponent(o.component, images); err != nil {
			return err
		}
	}
	for i, image := range images {
		digest, err := image.index.Digest()
		if err != nil {
			return fmt.Errorf("digest of %s: %w", image.name, err)
		}
		line := fmt.Sprintf("%s:%s@%s", image.name, o.tag, digest)
		for _, program := range contents[i].programs {
			line += " " + program.Name
		}
		if _, err := fmt.Fprintln(stdout, line); err != nil {
			return err
		}
	}
	return nil
}

func parse(ctx context.Context, args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("image", flag.ContinueOnError)
	fs.StringVar(&o.root, "root", "../..", "Folder of the main module.")
	fs.StringVar(&o.out, "o", "../../_output/image/sandlot.tar", "Archive to write.")
	fs.StringVar(&o.component, "component", "../../_output/image/kustomization.yaml", "Kustomize component to write, by which an install runs these images. Empty writes none.")
	fs.StringVar(&o.registry, "registry", registry, "What the names of the images begin with.")
	fs.StringVar(&o.tag, "tag", "", "What the names of the images end with (default the tag that the install names).")
	fs.StringVar(&o.version, "version", "", "What the programs call themselves. Without it, devel and the commit.")
	fs.StringVar(&o.revision, "revision", "", "The commit, if git does not know it.")
	fs.StringVar(&o.programs, "programs", "", "Folder to keep the programs in, in one for each platform. Empty keeps none.")
	platforms := fs.String("platforms", "linux/amd64,linux/arm64", "Platforms, comma-separated.")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", fs.Arg(0))
	}
	for p := range strings.SplitSeq(*platforms, ",") {
		platform, err := v1.ParsePlatform(p)
		if err != nil || platform.OS == "" || platform.Architecture == "" {
			return o, fmt.Errorf("-platforms: %q is not of the form OS/ARCHITECTURE", p)
		}
		o.platforms = append(o.platforms, *platform)
	}
	var err error
	if o.root, err = filepath.Abs(o.root); err != nil {
		return o, fmt.Errorf("-root: %w", err)
	}
	if o.tag == "" {
		if o.tag, err = installTag(o.root); err != nil {
			return o, err
		}
	}
	o.fromGit(ctx)
	if o.epoch, err = o.sourceDate(ctx); err != nil {
		return o, err
	}
	return o, nil
}

// fromGit finds out about the commit. Without git, or in an exported tree, there
// is just none.
func (o *options) fromGit(ctx context.Context) {
	if o.revision == "" {
		o.revision, _ = o.git(ctx, "rev-parse", "HEAD")
	}
	if o.version != "" {
		return
	}
	o.version = "devel"
	if o.revision == "" {
		return
	}
	o.version += "-" + o.revision[:min(12, len(o.revision))]
	if changes, err := o.git(ctx, "status", "--porcelain"); err != nil || changes != "" {
		o.version += "-dirty"
	}
}

// sourceDate is SOURCE_DATE_EPOCH, or when the commit was made.
func (o *options) sourceDate(ctx context.Context) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		var err error
		if text, err = o.git(ctx, "log", "-1", "--format=%ct"); err != nil {
			text = "0"
		}
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %q is not a number of seconds", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func (o *options) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = o.root
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
