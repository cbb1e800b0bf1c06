// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	utilexec "k8s.io/client-go/util/exec"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// Exit codes of a program. A command that ran in a sandbox gives its own.
const (
	exitFailure     = 1
	exitInterrupted = 130 // as a shell says of a program that SIGINT has ended
)

// interruption is the error of a command that a signal has ended.
type interruption string

// interrupted is what to say of a command that a signal has ended.
const interrupted interruption = "interrupted"

// Error says what was interrupted.
func (i interruption) Error() string { return string(i) }

// Is reports whether target is what a context says that a signal has ended.
func (interruption) Is(target error) bool { return target == context.Canceled }

// Report writes on w why a command failed, for people, and returns the code that the
// program ends with. It is 0 and writes nothing without an error, and that of the command
// which ran in a sandbox if that is all that failed.
func Report(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	var remote utilexec.CodeExitError
	ended := errors.As(err, &remote)
	text, known := cmdutil.StandardErrorMessage(err)
	if !known {
		text = "Error: " + err.Error()
	}
	_, _ = fmt.Fprintln(w, printable(text)) // there is no one else to tell
	switch {
	case ended:
		return remote.ExitStatus()
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	default:
		return exitFailure
	}
}
