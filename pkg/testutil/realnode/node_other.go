// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package realnode

import (
	"context"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
)

// Node is a running node. There is none on this system.
type Node struct{}

// Main does nothing.
func Main() {}

// Sweep does nothing.
func Sweep() error { return nil }

func supported() error { return errUnsupported }

// Start returns an error.
func Start(context.Context, *controlplane.ControlPlane, Options) (*Node, error) {
	return nil, errUnsupported
}

// Stop does nothing.
func (*Node) Stop() error { return nil }
