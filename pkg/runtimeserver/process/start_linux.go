// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandlot-io/sandlot/pkg/runtimeserver/processpb"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/users"
)

// defaultPath is where programs are looked for without a variable that says it.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Spec says what to start.
type Spec struct {
	Request *processpb.StartRequest
	// User is who runs it, and Env what /init has set.
	User users.User
	Env  map[string]string
	// Folder is where it runs if the request names no folder.
	Folder string
	// Limit is after which time it is killed; 0 is never.
	Limit time.Duration
}

// Start starts a process, and returns a reader of all of its output.
func (m *Manager) Start(ctx context.Context, s Spec) (*Process, *Reader, error) {
	select {
	case m.slots <- struct{}{}:
	default:
		return nil, nil, ErrTooMany
	}
	p, r, err := m.start(ctx, s)
	if err != nil {
		<-m.slots
		return nil, nil, err
	}
	m.followers.Go(func() { p.follow(s.Limit) })
	return p, r, nil
}

func (m *Manager) start(ctx context.Context, s Spec) (*Process, *Reader, error) {
	info := s.Request.GetProcess()
	if info == nil {
		info = &processpb.ProcessConfig{}
	}
	p := &Process{
		Info: info, Tag: s.Request.Tag, manager: m, writing: make(chan struct{}, 1), exited: make(chan syscall.WaitStatus, 1),
		gone: make(chan struct{}), ended: make(chan struct{}), readers: map[*Reader]struct{}{},
	}
	r, err := p.Read()
	if err != nil {
		return nil, nil, err
	}
	env := environment(s)
	folder, program, err := whatAndWhere(ctx, s, env["PATH"])
	if err != nil {
		return nil, nil, err
	}
	attr := &syscall.ProcAttr{Dir: folder, Sys: &syscall.SysProcAttr{Credential: s.User.Credential(), Pdeathsig: syscall.SIGKILL}}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		attr.Env = append(attr.Env, name+"="+env[name])
	}
	theirs, err := p.open(ctx, s, attr.Sys)
	defer func() {
		for _, file := range theirs {
			_ = file.Close() // this is our copy
		}
	}()
	if err != nil {
		p.closeAll()
		return nil, nil, err
	}
	for _, file := range theirs {
		attr.Files = append(attr.Files, file.Fd())
	}
	if len(attr.Files) == 1 { // a terminal is all three
		attr.Files = slices.Repeat(attr.Files, 3)
	}
	err = m.startProcess(program, append([]string{info.GetCmd()}, info.GetArgs()...), attr, func(pid int) {
		p.PID = pid
		m.known[pid] = p
	})
	if err != nil {
		p.closeAll()
		return nil, nil, fmt.Errorf("starting %s: %w", info.GetCmd(), err)
	}
	return p, r, nil
}

// environment is that of a new process: that of the container, what the user is, what /init
// has set, and what the request says, the later ones first.
func environment(s Spec) map[string]string {
	env := map[string]string{"PATH": defaultPath}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		env[name] = value
	}
	env["HOME"], env["USER"], env["LOGNAME"] = s.User.Home, s.User.Name, s.User.Name
	maps.Copy(env, s.Env)
	maps.Copy(env, s.Request.GetProcess().GetEnvs())
	return env
}

// whatAndWhere finds the folder of a new process and its program, as the user sees them.
func whatAndWhere(ctx context.Context, s Spec, path string) (folder, program string, err error) {
	info := s.Request.GetProcess()
	if info.GetCmd() == "" {
		return "", "", errors.New("the request names no command")
	}
	if folder, err = s.User.Absolute(info.GetCwd(), s.Folder); err != nil {
		return "", "", fmt.Errorf("cwd: %w", err)
	}
	err = s.User.Do(ctx, func() error {
		stat, err := os.Stat(folder)
		if err != nil && info.GetCwd() == "" && s.Folder == "" {
			folder, err = "/", nil // a user without a home
		} else if err == nil && !stat.IsDir() {
			err = syscall.ENOTDIR
		}
		if err != nil {
			return fmt.Errorf("cwd %q: %w", folder, err)
		}
		program, err = lookPath(info.GetCmd(), path, folder)
		return err
	})
	return folder, program, err
}

// lookPath finds a program as a shell does. Whether it can be run is for the kernel to say.
func lookPath(name, path, folder string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(folder, name)
		}
		return name, nil
	}
	for _, in := range filepath.SplitList(path) {
		program := filepath.Join(in, name)
		if stat, err := os.Stat(program); filepath.IsAbs(program) && err == nil && stat.Mode().IsRegular() && stat.Mode()&0o111 != 0 {
			return program, nil
		}
	}
	return "", fmt.Errorf("starting %s: %w: it is in no folder of PATH", name, os.ErrNotExist)
}

// open makes the files of a new process, and returns its ends of them.
func (p *Process) open(ctx context.Context, s Spec, sys *syscall.SysProcAttr) ([]*os.File, error) {
	// The leader of a session cannot leave its group for that of another process, so signals to
	// the group reach it.
	sys.Setsid = true
	if s.Request.GetPty() != nil {
		sys.Setctty = true
		return p.openPTY(ctx, s)
	}
	var theirs []*os.File
	pipe := func() (*os.File, *os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, fmt.Errorf("making a pipe: %w", err)
		}
		return r, w, nil
	}
	// Without a word about it the input is open, as clients of before the field expect.
	if s.Request.Stdin == nil || s.Request.GetStdin() {
		r, w, err := pipe()
		if err != nil {
			return theirs, err
		}
		theirs, p.stdin = append(theirs, r), w
	} else {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return theirs, err
		}
		theirs = append(theirs, null)
	}
	for _, event := range []func([]byte) *processpb.ProcessEvent_DataEvent{stdoutEvent, stderrEvent} {
		r, w, err := pipe()
		if err != nil {
			return theirs, err
		}
		theirs, p.outputs = append(theirs, w), append(p.outputs, output{r, event})
	}
	return theirs, nil
}

// openPTY makes a terminal that belongs to the user.
func (p *Process) openPTY(ctx context.Context, s Spec) ([]*os.File, error) {
	var theirs []*os.File
	err := s.User.Do(ctx, func() error {
		var err error
		if p.pty, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
			return fmt.Errorf("making a terminal: %w", err)
		}
		number := 0
		err = control(p.pty, func(fd int) error {
			if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
				return err
			}
			number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
			return err
		})
		if err != nil {
			return fmt.Errorf("making a terminal: %w", err)
		}
		tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			return fmt.Errorf("making a terminal: %w", err)
		}
		theirs = []*os.File{tty}
		return nil
	})
	if err != nil {
		return theirs, err
	}
	p.outputs = []output{{p.pty, ptyEvent}}
	if size := s.Request.GetPty().GetSize(); size != nil {
		return theirs, resize(p.pty, size)
	}
	return theirs, nil
}

// closeAll closes our ends of the files of a process that was not started.
func (p *Process) closeAll() {
	for _, out := range p.outputs {
		_ = out.file.Close()
	}
	for _, file := range []*os.File{p.pty, p.stdin} {
		if file != nil {
			_ = file.Close()
		}
	}
}

func stdoutEvent(data []byte) *processpb.ProcessEvent_DataEvent {
	return &processpb.ProcessEvent_DataEvent{Output: &processpb.ProcessEvent_DataEvent_Stdout{Stdout: data}}
}

func stderrEvent(data []byte) *processpb.ProcessEvent_DataEvent {
	return &processpb.ProcessEvent_DataEvent{Output: &processpb.ProcessEvent_DataEvent_Stderr{Stderr: data}}
}

func ptyEvent(data []byte) *processpb.ProcessEvent_DataEvent {
	return &processpb.ProcessEvent_DataEvent{Output: &processpb.ProcessEvent_DataEvent_Pty{Pty: data}}
}
