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

// MaybeRunNode does nothing.
func MaybeRunNode() {}

// RemoveLeftovers does nothing.
func RemoveLeftovers() error { return nil }

func checkNamespaces() error { return errUnsupported }

func checkFilters(string) error { return errUnsupported }

// Start returns an error.
func Start(context.Context, *controlplane.ControlPlane, Options) (*Node, error) {
	return nil, errUnsupported
}

// HostAddress returns nothing.
func (*Node) HostAddress() string { return "" }

// Address returns nothing.
func (*Node) Address() string { return "" }

// Boot returns an error.
func (*Node) Boot(context.Context) error { return errUnsupported }

// Kill does nothing.
func (*Node) Kill() {}

// KillProgram returns an error.
func (*Node) KillProgram(string) error { return errUnsupported }

// Stop does nothing.
func (*Node) Stop() error { return nil }
