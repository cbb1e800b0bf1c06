// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandlot-io/sandlot/pkg/runtimeserver/filesystempb"
)

// describer describes files. It remembers the names of their owners.
type describer struct{ users, groups map[uint32]string }

func newDescriber() *describer { return &describer{map[uint32]string{}, map[uint32]string{}} }

// entry describes a path. Of a symlink, type and mode are those of where it leads, as far as
// it leads anywhere.
func (d *describer) entry(path string) (*filesystempb.EntryInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	e := &filesystempb.EntryInfo{
		Name: text(filepath.Base(path)), Path: text(path), Type: typeOf(info.Mode()), Size: info.Size(), Mode: uint32(info.Mode().Perm()),
		Permissions: info.Mode().String(),
	}
	if modified := timestamppb.New(info.ModTime()); modified.IsValid() {
		e.ModifiedTime = modified
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		e.Owner = name(d.users, stat.Uid, func(id string) (string, error) {
			account, err := user.LookupId(id)
			if err != nil {
				return "", err
			}
			return account.Username, nil
		})
		e.Group = name(d.groups, stat.Gid, func(id string) (string, error) {
			group, err := user.LookupGroupId(id)
			if err != nil {
				return "", err
			}
			return group.Name, nil
		})
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return e, nil
	}
	e.Type = filesystempb.FileType_FILE_TYPE_SYMLINK
	target, err := os.Readlink(path)
	if err != nil {
		return nil, err
	}
	if at, err := os.Stat(path); err == nil {
		e.Type, e.Mode = typeOf(at.Mode()), uint32(at.Mode().Perm())
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			target = resolved
		}
	}
	e.SymlinkTarget = new(text(target))
	return e, nil
}

// text is what a message can hold of a name, which may be any bytes. One name that is no text
// must not make an answer about all others impossible.
func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

func typeOf(mode fs.FileMode) filesystempb.FileType {
	switch {
	case mode.IsRegular():
		return filesystempb.FileType_FILE_TYPE_FILE
	case mode.IsDir():
		return filesystempb.FileType_FILE_TYPE_DIRECTORY
	}
	return filesystempb.FileType_FILE_TYPE_UNSPECIFIED
}

// name finds the name of a number, which is its own where there is none.
func name(known map[uint32]string, number uint32, find func(string) (string, error)) string {
	if name, ok := known[number]; ok {
		return name
	}
	id := strconv.FormatUint(uint64(number), 10)
	name, err := find(id)
	if err != nil {
		name = id
	}
	known[number] = text(name)
	return known[number]
}

// lister collects entries.
type lister struct {
	*describer
	entries []*filesystempb.EntryInfo
	bytes   int
}

// list collects what is below a folder. Symlinks are followed to the folder, not below it.
func (l *lister) list(folder string, depth uint32) error {
	children, err := readFolder(folder, maxEntries-len(l.entries))
	if err != nil {
		return err
	}
	for _, child := range children {
		path := filepath.Join(folder, child.Name())
		e, err := l.entry(path)
		if err != nil {
			continue // it has just gone
		}
		if l.bytes += len(e.GetPath()) + len(e.GetSymlinkTarget()); l.bytes > maxPathBytes {
			return errTooManyEntries
		}
		l.entries = append(l.entries, e)
		if depth <= 1 || !child.IsDir() {
			continue
		}
		if err := l.list(path, depth-1); err != nil && !isGone(err) {
			return err
		}
	}
	return nil
}

// isGone reports whether an error of a folder means that it cannot be looked into, which
// leaves out what is in it.
func isGone(err error) bool {
	return os.IsNotExist(err) || os.IsPermission(err) || errors.Is(err, syscall.ENAMETOOLONG)
}
