// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sandboxprocess runs an agent-runtime for each sandbox as a process of this machine, for use without a
// cluster. It isolates nothing: commands in such a sandbox run as the user of this program.
package sandboxprocess

import (
	"bufio"
	"cmp"
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
)

const (
	// startTimeout is how long a process may take until it listens.
	startTimeout = 10 * time.Second
	// defaultStopTimeout is how long a process may take to end, with all that it has started. Then it is killed.
	// sandlot-runtime gives its commands 11 s.
	defaultStopTimeout = 15 * time.Second
	// removeInterval is how often it is tried to remove the files of an earlier run.
	removeInterval = 100 * time.Millisecond
	// listening begins the line that sandlot-runtime writes when it listens.
	listening = "sandlot-runtime listens on "
)

// Runner runs the processes of sandboxes. It is safe for concurrent use.
type Runner struct {
	program, folder string
	stopTimeout     time.Duration

	mu      sync.Mutex
	running map[types.NamespacedName]*process
	onEnd   func(types.NamespacedName)
	stopped bool
	waits   sync.WaitGroup
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

// New returns a Runner of the program sandlot-runtime at a path. Each sandbox has a folder of its own below folder, in
// which its commands begin. What is in there from an earlier run is removed, of which commands may still end.
func New(ctx context.Context, program, folder string) (*Runner, error) {
	var last error
	err := wait.PollUntilContextTimeout(ctx, removeInterval, defaultStopTimeout, true, func(context.Context) (bool, error) {
		last = removeAll(folder)
		return last == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("removing the files of earlier sandboxes: %w", cmp.Or(last, err))
	}
	return &Runner{
		program: program, folder: folder, stopTimeout: defaultStopTimeout,
		running: map[types.NamespacedName]*process{}, onEnd: func(types.NamespacedName) {},
	}, nil
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
	if err := r.Stop(sandbox); err != nil {
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
		_ = p.cmd.Wait()   // how it ended means nothing: it was not to
		_ = output.Close() // others may hold the other end
		close(p.ended)
		r.ended(sandbox, p)
	})
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case first := <-line:
		if strings.HasPrefix(first, listening) {
			return r.started(p)
		}
		err = errors.New("it ended at once")
	case <-timer.C:
		err = fmt.Errorf("it does not listen after %s", startTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}
	return errors.Join(fmt.Errorf("agent-runtime of Sandbox %s at %s: %w", sandbox, address, err), r.Stop(sandbox))
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
	home := filepath.Join(r.folder, sandbox.Namespace, sandbox.Name)
	temporary := filepath.Join(home, "tmp")
	if err := os.MkdirAll(temporary, 0o700); err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(r.program, "serve", "--address", address) //nolint:noctx // Stop ends it, with what it has started
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + temporary, "PATH=" + os.Getenv("PATH"), "LANG=" + os.Getenv("LANG")}
	cmd.SysProcAttr = endsWithParent()
	output, written, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = written.Close() }() // the process has its own
	cmd.Stdout = written
	p := &process{uid: uid, cmd: cmd, home: home, ended: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		err = errors.New("all processes are being stopped")
	} else {
		err = cmd.Start()
	}
	if err != nil {
		return nil, nil, errors.Join(err, output.Close())
	}
	r.running[sandbox] = p
	return p, output, nil
}

func (r *Runner) ended(sandbox types.NamespacedName, p *process) {
	r.mu.Lock()
	call, isNews := r.onEnd, p.listens && !p.stops
	r.mu.Unlock()
	if isNews {
		call(sandbox)
	}
}

// Stop ends the process of a sandbox, if it has one, and removes its files. After an error it can be called again.
func (r *Runner) Stop(sandbox types.NamespacedName) error {
	p := r.find(sandbox)
	if p == nil {
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
	if err := removeAll(p.home); err != nil {
		return fmt.Errorf("removing the files of Sandbox %s: %w", sandbox, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[sandbox] == p {
		delete(r.running, sandbox)
	}
	return nil
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
		stops.Go(func() { errs[i] = r.Stop(sandbox) })
	}
	stops.Wait()
	r.waits.Wait()
	return errors.Join(errs...)
}
