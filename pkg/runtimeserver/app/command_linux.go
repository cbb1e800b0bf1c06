// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app is the program sandlot-runtime.
package app

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandlot-io/sandlot/pkg/version"
)

const usage = `sandlot-runtime is an agent-runtime: it serves processes and files of the container that it
runs in, by the protocol of envd.

  sandlot-runtime install FOLDER                  copy this program into a folder
  sandlot-runtime serve [flags] [-- COMMAND...]   serve, beside a command whose end is the end of both
  sandlot-runtime start [flags]                   serve in the background, and return when it listens
  sandlot-runtime version
`

// listening begins the line that the server writes when it listens.
const listening = "sandlot-runtime listens on "

// background is serve as start runs it.
const background = "serve-in-background"

// containerLog is the standard error of the first process of the container.
const containerLog = "/proc/1/fd/2"

// maxFailure bounds what is repeated of a server that did not start.
const maxFailure = 4 << 10

// Run runs the program, and returns its exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	code, err := run(args, stdout, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "sandlot-runtime: %v\n", err) // there is no other place to report it
	}
	return code
}

func run(args []string, stdout, stderr io.Writer) (int, error) {
	if len(args) == 0 {
		_, _ = io.WriteString(stderr, usage) // as above
		return 2, nil
	}
	switch name, args := args[0], args[1:]; name {
	case "serve", background:
		o, err := parse(name, args, stderr)
		if err != nil {
			return 2, err
		}
		o.inBackground = name == background
		return serve(o, stdout, stderr)
	case "start":
		o, err := parse(name, args, stderr)
		if err == nil && len(o.command) > 0 {
			err = errors.New("start takes no command: use serve")
		}
		if err != nil {
			return 2, err
		}
		return codeOf(start(args))
	case "install":
		if len(args) != 1 {
			return 2, errors.New("usage: sandlot-runtime install FOLDER")
		}
		return codeOf(install(args[0]))
	case "version":
		_, err := fmt.Fprintln(stdout, version.Get())
		return 0, err
	case "help", "-h", "--help":
		_, err := io.WriteString(stdout, usage)
		return 0, err
	default:
		_, _ = io.WriteString(stderr, usage) // as above
		return 2, fmt.Errorf("unknown command %q", name)
	}
}

func codeOf(err error) (int, error) {
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// install copies this program, whole or not at all.
func install(folder string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	to, err := os.CreateTemp(folder, ".sandlot-runtime-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(to.Name()) }() // it has another name by then
	_, err = io.Copy(to, from)
	err = errors.Join(err, to.Chmod(0o755), to.Close())
	if err != nil {
		return fmt.Errorf("copying the program: %w", err)
	}
	return os.Rename(to.Name(), filepath.Join(folder, "sandlot-runtime"))
}

// logToContainer makes standard output or error that of the container, for nothing reads the pipe of start
// any more. If another user has the container's, the pipe stays, and what is written is lost.
func logToContainer(fd int) {
	file, err := os.OpenFile(containerLog, os.O_WRONLY|os.O_APPEND|unix.O_NOCTTY, 0)
	if err != nil {
		return
	}
	_ = unix.Dup3(int(file.Fd()), fd, 0) // does not fail for files that are open
	_ = file.Close()                     // the copy stays
}

// start runs serve in a session of its own, and returns when it listens, or with the error
// that it has ended with.
func start(args []string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	said, says, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = said.Close() }() // it was only read
	cmd := exec.Command(program, append([]string{background}, args...)...)
	cmd.Stdout, cmd.Stderr = says, says
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = says.Close() // this is our copy
	if err != nil {
		return err
	}
	lines := bufio.NewReader(said)
	line, err := lines.ReadString('\n')
	if err == nil && strings.HasPrefix(line, listening) {
		return cmd.Process.Release()
	}
	rest, err := io.ReadAll(io.LimitReader(lines, maxFailure))
	return fmt.Errorf("the server has ended: %w: %s%s", errors.Join(err, cmd.Wait()), line, rest)
}
