// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	"github.com/sandlot-io/sandlot/pkg/runtimeserver/processpb"
)

var errEnded = errors.New("the process has ended")

// List returns the processes that run, by their numbers.
func (m *Manager) List() []*processpb.ProcessInfo {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*processpb.ProcessInfo, 0, len(m.known))
	for pid, p := range m.known {
		all = append(all, &processpb.ProcessInfo{Config: p.Info, Pid: uint32(pid), Tag: p.Tag})
	}
	slices.SortFunc(all, func(a, b *processpb.ProcessInfo) int { return cmp.Compare(a.GetPid(), b.GetPid()) })
	return all
}

// Find returns the process that a request means.
func (m *Manager) Find(selector *processpb.ProcessSelector) (*Process, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch by := selector.GetSelector().(type) {
	case *processpb.ProcessSelector_Pid:
		if p := m.known[int(by.Pid)]; p != nil {
			return p, nil
		}
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", by.Pid))
	case *processpb.ProcessSelector_Tag:
		for _, p := range m.known {
			if p.Tag != nil && *p.Tag == by.Tag {
				return p, nil
			}
		}
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with tag %q not found", by.Tag))
	}
	return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the request names no process"))
}
