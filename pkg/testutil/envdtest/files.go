// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"bytes"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// home is where relative paths begin.
const home = "/home/user"

// Files are files and folders in memory.
type Files struct {
	mu    sync.Mutex
	nodes map[string]*node // by absolute path; all parents are there
	// changed is closed and replaced with each change.
	changed chan struct{}
}

type node struct {
	dir      bool
	content  []byte
	modified time.Time
}

// NewFiles returns the folder / and the home folder.
func NewFiles() *Files {
	f := &Files{nodes: map[string]*node{"/": {dir: true, modified: time.Now()}}, changed: make(chan struct{})}
	f.makeDir(home)
	return f
}

func absolute(name string) string {
	if !path.IsAbs(name) {
		name = path.Join(home, name)
	}
	return path.Clean(name)
}

// Read returns the content of a file. ok is false where there is none.
func (f *Files) Read(name string) (content []byte, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[absolute(name)]
	if n == nil || n.dir {
		return nil, false
	}
	return bytes.Clone(n.content), true
}

// Write writes a file, and the folders above it. ok is false where a folder has the name,
// or a file that of a folder.
func (f *Files) Write(name string, content []byte) (ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = absolute(name)
	if n := f.nodes[name]; n != nil && n.dir || !f.makeDir(path.Dir(name)) {
		return false
	}
	f.nodes[name] = &node{content: bytes.Clone(content), modified: time.Now()}
	close(f.changed)
	f.changed = make(chan struct{})
	return true
}

// await returns a channel that is closed with the next change, and reports whether there
// is a file of the name now.
func (f *Files) await(name string) (changed <-chan struct{}, there bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed, f.nodes[absolute(name)] != nil
}

// makeDir makes a folder and those above it. The caller has the lock.
func (f *Files) makeDir(name string) bool {
	if n := f.nodes[name]; n != nil {
		return n.dir
	}
	if !f.makeDir(path.Dir(name)) {
		return false
	}
	f.nodes[name] = &node{dir: true, modified: time.Now()}
	return true
}

// below returns the paths below a folder down to a depth, in order. The caller has the lock.
func (f *Files) below(folder string, depth int) []string {
	prefix := strings.TrimSuffix(folder, "/") + "/"
	var names []string
	for name := range f.nodes {
		rest, ok := strings.CutPrefix(name, prefix)
		if ok && rest != "" && strings.Count(rest, "/") < depth {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
