// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// loopback is where everything listens.
const loopback = "127.0.0.1"

// Free ports are given in blocks, of which a control plane holds one, so that two
// that start at the same time never want the same. The blocks are below the ports
// that the kernel gives to connections: one of those could be taken while its
// server restarts.
const (
	lowestPort = 12000
	blockSize  = 64
	blocks     = (32000 - lowestPort) / blockSize
)

// ports are the ports of one control plane by what they are for. They are kept in
// a file, so that a control plane that is started again has them again.
type ports struct {
	file string
	lock *fileutil.LockedFile // of the block

	mu   sync.Mutex
	kept keptPorts
}

type keptPorts struct {
	Block  int            `json:"block"`
	ByName map[string]int `json:"byName"`
}

func loadPorts(file string) (*ports, error) {
	p := &ports{file: file}
	content, err := os.ReadFile(file)
	if err == nil {
		if err := json.Unmarshal(content, &p.kept); err != nil {
			return nil, fmt.Errorf("ports of the last time: %s: %w", file, err)
		}
		if p.lock, err = lockBlock(p.kept.Block); err == nil {
			return p, nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fileutil.ErrLocked) {
		return nil, err
	}
	for _, block := range rand.Perm(blocks) {
		p.lock, err = lockBlock(block)
		if err == nil {
			p.kept = keptPorts{Block: block, ByName: map[string]int{}}
			return p, nil
		}
		if !errors.Is(err, fileutil.ErrLocked) {
			return nil, err
		}
	}
	return nil, errors.New("all blocks of ports are taken")
}

// lockBlock takes hold of a block of ports, for as long as this process lives.
func lockBlock(block int) (*fileutil.LockedFile, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("sandlot-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return fileutil.TryLockFile(filepath.Join(dir, strconv.Itoa(block)), os.O_RDWR|os.O_CREATE, 0o600)
}

// release lets others have the block.
func (p *ports) release() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lock == nil {
		return nil
	}
	err := p.lock.Close()
	p.lock = nil
	return err
}

// get returns the port for a purpose: the wanted one if that is not 0, that of
// the last time if it is still free, or any that is free.
func (p *ports) get(name string, wanted int) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wanted != 0 {
		return wanted, nil
	}
	port, known := p.kept.ByName[name]
	if known && isFree(port) {
		return port, nil
	}
	var used []int
	for _, other := range p.kept.ByName {
		used = append(used, other)
	}
	first := lowestPort + p.kept.Block*blockSize
	for port := range blockSize {
		port += first
		if slices.Contains(used, port) || !isFree(port) {
			continue
		}
		p.kept.ByName[name] = port
		content, err := json.MarshalIndent(p.kept, "", "  ")
		if err != nil {
			return 0, err
		}
		return port, os.WriteFile(p.file, append(content, '\n'), 0o600)
	}
	return 0, fmt.Errorf("no free port for %s from %d on", name, first)
}

func isFree(port int) bool {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address(port))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
