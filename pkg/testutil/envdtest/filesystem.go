// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"math"
	"net/http"
	"path"
	"strconv"
	"time"
)

// entry is a file or a folder as the filesystem service describes it.
type entry struct {
	Name         string    `json:"name"`
	Type         string    `json:"type"`
	Path         string    `json:"path"`
	Size         string    `json:"size"`
	Mode         uint32    `json:"mode"`
	Permissions  string    `json:"permissions"`
	Owner        string    `json:"owner"`
	Group        string    `json:"group"`
	ModifiedTime time.Time `json:"modifiedTime"`
}

type pathRequest struct {
	Path  string `json:"path"`
	Depth int    `json:"depth"`
}

type moveRequest struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
}

// entryOf describes a path. The caller has the lock.
func (f *Files) entryOf(name string) (entry, error) {
	n := f.nodes[name]
	if n == nil {
		return entry{}, notFound(name)
	}
	e := entry{
		Name: path.Base(name), Path: name, Type: "FILE_TYPE_FILE", Size: strconv.Itoa(len(n.content)),
		Mode: 0o644, Permissions: "-rw-r--r--", Owner: "user", Group: "user", ModifiedTime: n.modified.UTC(),
	}
	if n.dir {
		e.Type, e.Mode, e.Permissions = "FILE_TYPE_DIRECTORY", 0o755, "drwxr-xr-x"
	}
	return e, nil
}

func (e *Envd) stat(r *pathRequest) (any, error) {
	f := e.Files
	f.mu.Lock()
	defer f.mu.Unlock()
	found, err := f.entryOf(absolute(r.Path))
	return map[string]any{"entry": found}, err
}

func (e *Envd) makeDir(r *pathRequest) (any, error) {
	f, name := e.Files, absolute(r.Path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[name]; n != nil && n.dir {
		return nil, &rpcError{http.StatusConflict, "already_exists", "directory already exists: " + name}
	}
	if !f.makeDir(name) {
		return nil, &rpcError{http.StatusBadRequest, "invalid_argument", "path is a file: " + name}
	}
	made, err := f.entryOf(name)
	return map[string]any{"entry": made}, err
}

func (e *Envd) listDir(r *pathRequest) (any, error) {
	f, name := e.Files, absolute(r.Path)
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	if n == nil {
		return nil, notFound(name)
	}
	if !n.dir {
		return nil, &rpcError{http.StatusBadRequest, "invalid_argument", "path is not a directory: " + name}
	}
	entries := []entry{}
	for _, child := range f.below(name, max(r.Depth, 1)) {
		found, err := f.entryOf(child)
		if err != nil {
			return nil, err
		}
		entries = append(entries, found)
	}
	return map[string]any{"entries": entries}, nil
}

func (e *Envd) remove(r *pathRequest) (any, error) {
	f, name := e.Files, absolute(r.Path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nodes[name] == nil {
		return nil, notFound(name)
	}
	for _, child := range f.below(name, math.MaxInt) {
		delete(f.nodes, child)
	}
	delete(f.nodes, name)
	return struct{}{}, nil
}

func (e *Envd) move(r *moveRequest) (any, error) {
	f, from, to := e.Files, absolute(r.Source), absolute(r.Destination)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nodes[from] == nil {
		return nil, notFound(from)
	}
	if !f.makeDir(path.Dir(to)) {
		return nil, &rpcError{http.StatusBadRequest, "invalid_argument", "path is below a file: " + to}
	}
	for _, child := range append(f.below(from, math.MaxInt), from) {
		f.nodes[to+child[len(from):]] = f.nodes[child]
		delete(f.nodes, child)
	}
	moved, err := f.entryOf(to)
	return map[string]any{"entry": moved}, err
}
