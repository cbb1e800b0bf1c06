// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package users finds the accounts of the container, and acts as them.
package users

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"path"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Default is the name that stands for the account of that name where the container has
// one, and else for the user that this program runs as.
const Default = "user"

const (
	// maxThreads is how many calls of Do run at a time, each on a thread of its own.
	maxThreads = 64
	// threadTimeout is how long a call waits for a thread. All of them may hang, in a volume whose
	// server is away.
	threadTimeout = 10 * time.Second
)

// ErrUnknown means that the container has no account of a name, and ErrNotAllowed that
// this program cannot act as it. ErrBusy means that too many calls act as others.
var (
	ErrUnknown    = errors.New("no such user")
	ErrNotAllowed = errors.New("not allowed to act as this user")
	ErrBusy       = fmt.Errorf("%d calls act as other users, and none has ended for %s: a volume may hang", maxThreads, threadTimeout)
)

// threads has room for maxThreads.
var threads = make(chan struct{}, maxThreads)

// User is an account.
type User struct {
	// Name and Home are those of the account.
	Name, Home string

	uid, gid uint32
	groups   []uint32
	// own is set where it is the user that this program runs as.
	own bool
}

// Own returns the user that this program runs as, who need not have an account. HOME goes before the home of the account.
func Own() User {
	u := User{Home: os.Getenv("HOME"), uid: uint32(os.Getuid()), gid: uint32(os.Getgid()), own: true}
	if account, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		u.Name, u.Home = account.Username, cmp.Or(u.Home, account.HomeDir)
	}
	u.Name = cmp.Or(u.Name, strconv.Itoa(os.Getuid()))
	u.Home = cmp.Or(u.Home, "/")
	return u
}

// Lookup returns the user of a name. It is ErrUnknown or ErrNotAllowed if this program
// cannot act as it.
func Lookup(name string) (User, error) {
	own := Own()
	if name == own.Name || name == "root" && own.uid == 0 {
		return own, nil
	}
	account, err := user.Lookup(name)
	if err != nil {
		if name == Default {
			return own, nil
		}
		return User{}, fmt.Errorf("user %q: %w", name, ErrUnknown)
	}
	u := User{Name: account.Username, Home: cmp.Or(account.HomeDir, "/")}
	if u.uid, err = id(account.Uid); err != nil {
		return User{}, fmt.Errorf("user %q: %w", name, err)
	}
	if u.gid, err = id(account.Gid); err != nil {
		return User{}, fmt.Errorf("user %q: %w", name, err)
	}
	if u.uid == own.uid {
		u.own = true
		return u, nil
	}
	if own.uid != 0 {
		return User{}, fmt.Errorf("user %q: %w: the runtime runs as %s, and not as root", name, ErrNotAllowed, own.Name)
	}
	groups, err := account.GroupIds()
	if err != nil {
		return User{}, fmt.Errorf("groups of user %q: %w", name, err)
	}
	for _, text := range groups {
		group, err := id(text)
		if err != nil {
			return User{}, fmt.Errorf("groups of user %q: %w", name, err)
		}
		u.groups = append(u.groups, group)
	}
	return u, nil
}

func id(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 1<<32-1 { // which the kernel takes for no change
		return 0, fmt.Errorf("%q is no number of a user or a group", text)
	}
	return uint32(n), nil
}

// Named returns the user name of the Authorization header of a request; empty without one.
// Its password means nothing.
func Named(header http.Header) string {
	encoded, ok := strings.CutPrefix(header.Get("Authorization"), "Basic ")
	if !ok {
		return ""
	}
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(string(text), ":")
	return name
}

// Absolute is the absolute path that a request means by a name: relative ones, and ~, begin
// at folder, or at the home of the user where that is empty.
func (u User) Absolute(name, folder string) (string, error) {
	if len(name) >= unix.PathMax || strings.ContainsRune(name, 0) {
		return "", errors.New("the path is too long, or has a NUL byte")
	}
	if rest, ok := strings.CutPrefix(name, "~"); ok && (rest == "" || rest[0] == '/') {
		return path.Join("/", u.Home, rest), nil
	}
	if !path.IsAbs(name) {
		name = path.Join("/", cmp.Or(folder, u.Home), name)
	}
	return path.Clean(name), nil
}

// Credential is what a process of the user starts with; nil where that is what this program
// has.
func (u User) Credential() *syscall.Credential {
	if u.own {
		return nil
	}
	return &syscall.Credential{Uid: u.uid, Gid: u.gid, Groups: u.groups}
}

// Do calls f with the rights of the user on files, as the kernel checks them: no path can
// be exchanged between a check and its use. f must do all on the goroutine that it is
// called on. Do waits for a thread until ctx ends, and for threadTimeout at most.
func (u User) Do(ctx context.Context, f func() error) error {
	if u.own {
		return f()
	}
	waiting, cancel := context.WithTimeoutCause(ctx, threadTimeout, ErrBusy)
	defer cancel()
	select {
	case threads <- struct{}{}:
	case <-waiting.Done():
		return fmt.Errorf("acting as user %q: %w", u.Name, context.Cause(waiting))
	}
	result := make(chan error, 1)
	go func() {
		defer func() { <-threads }()
		// It is never unlocked, so the thread ends with the goroutine, and nothing else
		// runs as the user.
		runtime.LockOSThread()
		if err := u.become(); err != nil {
			result <- fmt.Errorf("user %q: %w: %w", u.Name, ErrNotAllowed, err)
			return
		}
		result <- f()
	}()
	return <-result
}

// become changes the effective user and groups of this thread alone, which takes its
// capabilities as well: the functions of package syscall change all threads. The real and the
// saved user stay root's, so that the user can neither signal nor trace the thread.
func (u User) become() error {
	const keep = ^uintptr(0)
	var first unsafe.Pointer
	if len(u.groups) > 0 {
		first = unsafe.Pointer(&u.groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(u.groups)), uintptr(first), 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(u.gid), keep); errno != 0 {
		return fmt.Errorf("setresgid: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(u.uid), keep); errno != 0 {
		return fmt.Errorf("setresuid: %w", errno)
	}
	// A container may keep the capabilities of threads that change their user.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	if data[0].Effective != 0 || data[1].Effective != 0 {
		return errors.New("the capabilities of root stay")
	}
	return nil
}
