// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sandboxprocess runs an agent-runtime for each sandbox as a process of this machine, for use without a
// cluster. It isolates nothing: commands in such a sandbox run as the user of this program.
package sandboxprocess

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	// startTimeout is how long a process may take until it listens.
	startTimeout = 10 * time.Second
	// defaultStopTimeout is how long a process may take to end, with all that it has started. Then it is killed.
	// sandlot-runtime gives its commands 11 s.
	defaultStopTimeout = 15 * time.Second
	// removeInterval is how often it is tried to remove files to which commands may still write, for
	// defaultStopTimeout.
	removeInterval = 100 * time.Millisecond
	// removedFolder has the files of ended sandboxes until they are removed. No namespace has its name.
	removedFolder = ".removed"
	// listening begins the line that sandlot-runtime writes when it listens.
	listening = "sandlot-runtime listens on "
)

// Options say what a Runner runs.
type Options struct {
	// Program is the path of sandlot-runtime.
	Program string
	// Folder has a folder for each sandbox, in which its commands begin.
	Folder string
	// MaxProcesses is how many sandboxes have a process at the same time.
	MaxProcesses int
	// OnLeftover is called with an error if files of an ended sandbox cannot be removed. New tries again.
	OnLeftover func(error)
}

// Runner runs the processes of sandboxes. It is safe for concurrent use.
type Runner struct {
	options     Options
	stopTimeout time.Duration
	removeAll   func(folder string) error

	mu      sync.Mutex
	running map[types.NamespacedName]*process
	onEnd   func(types.NamespacedName)
	stopped bool
	// waits are for the ends of processes, and removes remove files.
	waits, removes sync.WaitGroup
	// closing is cancelled when Close is called.
	closing context.Context
	close   context.CancelFunc
}

// process is the process of one sandbox.
type process struct {
	uid  types.UID
	cmd  *exec.Cmd
	home string
	// ended is closed when it has ended.
	ended chan struct{}
	// listens is set when it listens, and stops when it is to end. The lock of the Runner guards both.
	listens, stops bool
}

// New returns a Runner, to be closed. What is in its folder from an earlier run is removed in the background: commands
// of that may still end.
func New(o Options) (*Runner, error) {
	path, err := filepath.Abs(o.Program) // a relative one would be looked for in the folder of the sandbox
	if err != nil {
		return nil, err
	}
	o.Program = path
	removed := filepath.Join(o.Folder, removedFolder)
	if err := os.MkdirAll(removed, 0o700); err != nil {
		return nil, err
	}
	r := &Runner{
		options: o, stopTimeout: defaultStopTimeout, removeAll: removeAll,
		running: map[types.NamespacedName]*process{}, onEnd: func(types.NamespacedName) {},
	}
	r.closing, r.close = context.WithCancel(context.Background()) // until Close
	left, err := os.ReadDir(removed)
	if err != nil {
		return nil, err
	}
	for _, entry := range left {
		r.remove(filepath.Join(removed, entry.Name()))
	}
	namespaces, err := os.ReadDir(o.Folder)
	if err != nil {
		return nil, err
	}
	for _, entry := range namespaces {
		if entry.Name() == removedFolder {
			continue
		}
		if err := r.discard(filepath.Join(o.Folder, entry.Name())); err != nil {
			return nil, fmt.Errorf("removing the files of earlier sandboxes: %w", err)
		}
	}
	return r, nil
}

// OnEnd sets what is called with the name of a sandbox when its process has ended that listened and was not stopped.
func (r *Runner) OnEnd(call func(types.NamespacedName)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onEnd = call
}

// IsRunning reports whether the process of a sandbox runs.
func (r *Runner) IsRunning(sandbox types.NamespacedName, uid types.UID) bool {
	p := r.find(sandbox)
	if p == nil || p.uid != uid {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (r *Runner) find(sandbox types.NamespacedName) *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[sandbox]
}

// Start starts the process of a sandbox at an address, in an empty folder, and returns when it listens. An earlier
// process of a sandbox of that name ends before.
func (r *Runner) Start(ctx context.Context, sandbox types.NamespacedName, uid types.UID, address string) error {
	if err := r.Stop(sandbox, ""); err != nil {
		return err
	}
	p, output, err := r.start(sandbox, uid, address)
	if err != nil {
		return fmt.Errorf("starting the agent-runtime of Sandbox %s: %w", sandbox, err)
	}
	line := make(chan string, 1)
	r.waits.Go(func() {
		text := bufio.NewReader(output)
		first, _ := text.ReadString('\n') // empty if it has ended
		line <- first
		_, _ = io.Copy(io.Discard, text) // it may write more, which means nothing
	})
	r.waits.Go(func() {
		err := p.cmd.Wait()
		_ = output.Close() // others may hold the other end
		close(p.ended)
		r.ended(sandbox, p, err)
	})
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case first := <-line:
		if strings.HasPrefix(first, listening) {
			return r.started(p)
		}
		err = fmt.Errorf("it ended at once: %q", strings.TrimSpace(first)) // it says why in its first line
	case <-timer.C:
		err = fmt.Errorf("it does not listen after %s", startTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}
	return errors.Join(fmt.Errorf("agent-runtime of Sandbox %s at %s: %w", sandbox, address, err), r.Stop(sandbox, ""))
}

// started notes that a process listens. It returns an error if it has ended since.
func (r *Runner) started(p *process) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-p.ended:
		return errors.New("the agent-runtime ended at once")
	default:
		p.listens = true
		return nil
	}
}

// start starts a process that is not waited for yet. It returns what the process writes.
func (r *Runner) start(sandbox types.NamespacedName, uid types.UID, address string) (*process, *os.File, error) {
	home := filepath.Join(r.options.Folder, sandbox.Namespace, sandbox.Name)
	temporary := filepath.Join(home, "tmp")
	if err := os.MkdirAll(temporary, 0o700); err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(r.options.Program, "serve", "--address", address, "--same-user") //nolint:noctx // Stop ends it, with what it has started
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + temporary, "PATH=" + os.Getenv("PATH"), "LANG=" + os.Getenv("LANG")}
	cmd.SysProcAttr = attributes()
	output, written, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = written.Close() }() // the process has its own
	cmd.Stdout, cmd.Stderr = written, written
	p := &process{uid: uid, cmd: cmd, home: home, ended: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.stopped:
		err = errors.New("all processes are being stopped")
	case len(r.running) >= r.options.MaxProcesses:
		err = fmt.Errorf("%d sandboxes have a process, and no more may: delete some", len(r.running))
	default:
		err = cmd.Start()
	}
	if err != nil {
		return nil, nil, errors.Join(err, output.Close(), r.discard(home))
	}
	r.running[sandbox] = p
	return p, output, nil
}

func (r *Runner) ended(sandbox types.NamespacedName, p *process, err error) {
	r.mu.Lock()
	call, isNews := r.onEnd, p.listens && !p.stops
	r.mu.Unlock()
	if isNews {
		klog.InfoS("Agent-runtime ended unexpectedly", "sandbox", klog.KRef(sandbox.Namespace, sandbox.Name), "err", err)
		call(sandbox)
	}
}

// Stop ends the process of a sandbox, if it has one, and takes its files away. It does nothing if the process is that
// of the UID keep. After an error it can be called again.
func (r *Runner) Stop(sandbox types.NamespacedName, keep types.UID) error {
	p := r.find(sandbox)
	if p == nil || p.uid == keep {
		return nil
	}
	r.mu.Lock()
	p.stops = true
	r.mu.Unlock()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	timer := time.NewTimer(r.stopTimeout)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		_ = p.cmd.Process.Kill() // as above
		<-p.ended
	}
	if err := r.discard(p.home); err != nil {
		return fmt.Errorf("removing the files of Sandbox %s: %w", sandbox, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[sandbox] == p {
		delete(r.running, sandbox)
	}
	return nil
}

// discard moves a folder away, so that the next one of its name is empty, and removes it in the background.
func (r *Runner) discard(folder string) error {
	info, err := os.Lstat(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a command has removed it
	}
	if err != nil {
		return err
	}
	parent, err := os.MkdirTemp(filepath.Join(r.options.Folder, removedFolder), "")
	if err != nil {
		return err
	}
	if info.IsDir() { // and not a link to another one
		_ = os.Chmod(folder, 0o700) // a folder that its owner may not write to cannot be moved
	}
	if err := os.Rename(folder, filepath.Join(parent, filepath.Base(folder))); err != nil {
		return errors.Join(err, os.Remove(parent))
	}
	r.remove(parent)
	return nil
}

// remove removes a folder in the background. Commands that have not ended yet may write to it.
func (r *Runner) remove(folder string) {
	r.removes.Go(func() {
		var last error
		// That of the context is about Close, which does not wait for such commands.
		_ = wait.PollUntilContextTimeout(r.closing, removeInterval, defaultStopTimeout, true, func(context.Context) (bool, error) {
			last = r.removeAll(folder)
			return last == nil, nil
		})
		if last != nil && r.options.OnLeftover != nil {
			r.options.OnLeftover(fmt.Errorf("removing the files of an ended sandbox: %w", last))
		}
	})
}

// removeAll removes a folder, also with folders in it without the right to write, such as those of Go's modules.
func removeAll(folder string) error {
	err := os.RemoveAll(folder)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700) // what stays shows below
		}
		return nil
	})
	return os.RemoveAll(folder)
}

// Close ends all processes, and starts none any more.
func (r *Runner) Close() error {
	r.mu.Lock()
	r.stopped = true
	var all []types.NamespacedName
	for sandbox := range r.running {
		all = append(all, sandbox)
	}
	r.mu.Unlock()
	errs := make([]error, len(all))
	var stops sync.WaitGroup
	for i, sandbox := range all {
		stops.Go(func() { errs[i] = r.Stop(sandbox, "") })
	}
	stops.Wait()
	r.waits.Wait()
	r.close()
	r.removes.Wait()
	return errors.Join(errs...)
}
