// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// programs get an image each: a node pulls, and an intruder finds, no more than
// what is run there. They share the layer below them.
var programs = []struct{ name, description string }{
	{"sandlot", "Sandboxes on one machine, without a cluster: API server, etcd and controllers in one process"},
	{"sandlot-apiserver", "The API of sandboxes and claims of them, as an aggregated API server of Kubernetes"},
	{"sandlot-controller-manager", "The background work for sandboxes and claims of them"},
	{"sandlot-gateway", "The API of E2B over sandboxes of Kubernetes, and a way to their ports"},
}

// compile builds all programs for all platforms, into a folder for each platform
// below dir. Without cgo they are static; without paths and with the version
// given, they depend on the sources and the version of Go alone.
func compile(ctx context.Context, o options, dir string) error {
	for _, platform := range o.platforms {
		args := []string{"build", "-trimpath", "-buildvcs=false",
			"-ldflags", "-s -w -buildid= -X github.com/sandlot-io/sandlot/pkg/version.version=" + o.version,
			"-o", programDir(dir, platform) + string(filepath.Separator)}
		for _, program := range programs {
			args = append(args, "./cmd/"+program.name)
		}
		if err := os.MkdirAll(programDir(dir, platform), 0o755); err != nil {
			return fmt.Errorf("compiling for %s: %w", platform, err)
		}
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = o.root
		// What the environment could say about the code that is made.
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off",
			"GOOS="+platform.OS, "GOARCH="+platform.Architecture, "GOAMD64=v1", "GOARM64=v8.0")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("compiling for %s: %w", platform, err)
		}
	}
	return nil
}

func programDir(dir string, platform v1.Platform) string {
	return filepath.Join(dir, "programs", platform.OS+"-"+platform.Architecture)
}
