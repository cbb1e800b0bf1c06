// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

var (
	// ErrNotFound means that no sandbox has the id.
	ErrNotFound = errors.New("no sandbox has this id")
	// ErrUnavailable means that the API server did not answer, or that a limit of reads is
	// reached. A retry may help.
	ErrUnavailable = errors.New("the state of the sandbox could not be found out")
	// ErrSetupFailed means that the setup of the agent-runtime has failed. A retry does not help.
	ErrSetupFailed = fmt.Errorf("%w: its setup has failed", sandboxproxy.ErrRuntimeNotSetUp)
)

// State is the state of a sandbox for traffic. v1alpha1.State and mapping.E2BState are its states for users.
type State uint8

const (
	// Other is any state in which a sandbox neither runs nor can be resumed.
	Other State = iota
	// Running means that the sandbox serves.
	Running
	// Paused means that the sandbox will serve once it is resumed.
	Paused
)

// Route is a sandbox of the E2B API.
type Route struct {
	// ID is the id in the E2B API.
	ID string
	// Namespace and Name are those of the Sandbox; Claim is the name of its SandboxClaim.
	Namespace, Name, Claim string
	// UID is that of the Sandbox.
	UID types.UID
	// State is what it was when it was seen last.
	State State
	// AutoResume is true where traffic resumes the paused sandbox.
	AutoResume bool
	// Private is true where ports take the sandbox's traffic access token only.
	Private bool
}
