// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// fileName is the file of the keys in its folder.
	fileName = "e2b-keys.json"
	// maxFileBytes and maxFileKeys bound what is read and kept.
	maxFileBytes = 16 << 20
	maxFileKeys  = 4096
)

// File keeps keys in a file that only its owner may read, for a single process. Its folder
// belongs to that process.
type File struct {
	path  string
	clock clock.PassiveClock

	// writing is held while the file is written. Readers do not wait for it.
	writing sync.Mutex
	mu      sync.RWMutex
	// keys is never changed in place. It is replaced under both locks.
	keys map[string]Key
}

var _ Backend = (*File)(nil)

// filed is a key in the file.
type filed struct {
	ID        string    `json:"id"`
	Team      string    `json:"team"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"createdAt"`
	Ancestors []string  `json:"makers,omitempty"`
	Salt      []byte    `json:"salt"`
	Hash      []byte    `json:"hash"`
}

// OpenFile reads the keys in a folder, in which there may be none yet.
func OpenFile(folder string, clk clock.PassiveClock) (*File, error) {
	f := &File{path: filepath.Join(folder, fileName), clock: clk, keys: map[string]Key{}}
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("file of the API keys: %w", err)
	}
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("file of the API keys: %w", err)
	}
	if len(content) > maxFileBytes {
		return nil, fmt.Errorf("file of the API keys: %s has more than %d bytes", f.path, maxFileBytes)
	}
	var all []filed
	if err := json.Unmarshal(content, &all); err != nil {
		return nil, fmt.Errorf("file of the API keys: %s: %w", f.path, err)
	}
	for _, one := range all {
		key, err := parseKey(one.ID, one.Team, one.Name, one.CreatedAt, one.Ancestors, one.Salt, one.Hash)
		if err != nil {
			return nil, fmt.Errorf("file of the API keys: %s: %w", f.path, err)
		}
		f.keys[key.ID] = key
	}
	return f, nil
}

// Lookup implements Backend.
func (f *File) Lookup(ctx context.Context, id string) (Key, error) { return f.Read(ctx, id) }

// Read implements Backend.
func (f *File) Read(_ context.Context, id string) (Key, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	key, ok := f.keys[id]
	if !ok {
		return Key{}, ErrNotFound
	}
	return key, nil
}

// List implements Backend.
func (f *File) List(_ context.Context, team string) (kept []Key, _ error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, key := range f.keys {
		if key.Team == team {
			kept = append(kept, key)
		}
	}
	return kept, nil
}

// Create implements Backend.
func (f *File) Create(_ context.Context, key Key) (Key, error) {
	f.writing.Lock()
	defer f.writing.Unlock()
	if _, there := f.keys[key.ID]; there {
		return Key{}, fmt.Errorf("API key %s is there already", key.ID)
	}
	if len(f.keys) >= maxFileKeys {
		return Key{}, fmt.Errorf("%w: there are %d in %s: delete some", ErrLimit, len(f.keys), f.path)
	}
	key.CreatedAt = f.clock.Now().UTC().Truncate(time.Second)
	next := maps.Clone(f.keys)
	next[key.ID] = key
	if err := f.replace(next); err != nil {
		return Key{}, err
	}
	return key, nil
}

// Delete implements Backend.
func (f *File) Delete(_ context.Context, id string) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	if _, ok := f.keys[id]; !ok {
		return ErrNotFound
	}
	next := maps.Clone(f.keys)
	delete(next, id)
	return f.replace(next)
}

// replace writes keys to the file, and then serves them. f.writing is held.
func (f *File) replace(next map[string]Key) error {
	if err := f.write(next); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = next
	return nil
}
