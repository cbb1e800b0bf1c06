// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
)

// processes are those that run.
type processes struct {
	mu      sync.Mutex
	last    int
	running map[int]*process
}

type process struct {
	config processConfig
	kill   context.CancelFunc
}

type processConfig struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args"`
	Envs map[string]string `json:"envs"`
	Cwd  string            `json:"cwd,omitempty"`
}

type startRequest struct {
	Process processConfig `json:"process"`
}

type signalRequest struct {
	Process struct {
		PID int `json:"pid"`
	} `json:"process"`
	Signal string `json:"signal"`
}

// add makes a process of its own number.
func (p *processes) add(ctx context.Context, config processConfig) (context.Context, int) {
	ctx, kill := context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.running[p.last] = &process{config: config, kill: kill}
	return ctx, p.last
}

// end ends a process, and reports whether it was there.
func (p *processes) end(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.running[pid]
	if of == nil {
		return false
	}
	of.kill()
	delete(p.running, pid)
	return true
}

// start is process.Process/Start. The process ends with the client's connection.
func (e *Envd) start(w http.ResponseWriter, r *http.Request) {
	out := newStream(w)
	var request startRequest
	if err := readEnvelope(r.Body, &request); err != nil {
		_ = out.send(endOfStream, map[string]any{"error": map[string]any{"code": "invalid_argument", "message": err.Error()}})
		return
	}
	script, ok := scriptOf(request.Process)
	if !ok {
		_ = out.send(endOfStream, map[string]any{"error": map[string]any{"code": "invalid_argument", "message": "this double of envd runs /bin/bash -l -c only"}})
		return
	}
	ctx, pid := e.processes.add(r.Context(), request.Process)
	defer e.processes.end(pid)
	env := e.access.Env()
	maps.Copy(env, request.Process.Envs)
	gone := out.event("start", map[string]any{"pid": pid})
	shell := &shell{files: e.Files, env: env, write: func(to, text string) {
		if gone == nil {
			gone = out.event("data", map[string]any{to: []byte(text)})
		}
	}}
	code := shell.run(ctx, script)
	end := map[string]any{"exitCode": code, "exited": true, "status": "exit status " + strconv.Itoa(code)}
	if ctx.Err() != nil {
		end = map[string]any{"exitCode": -1, "exited": false, "status": "signal: killed", "error": "signal: killed"}
	} else if code != 0 {
		end["error"] = end["status"]
	}
	// Errors: the client is gone.
	_ = out.event("end", end)
	_ = out.send(endOfStream, struct{}{})
}

func scriptOf(config processConfig) (string, bool) {
	if config.Cmd != "/bin/bash" || len(config.Args) != 3 || config.Args[0] != "-l" || config.Args[1] != "-c" {
		return "", false
	}
	return config.Args[2], true
}

// list is process.Process/List.
func (e *Envd) list(*struct{}) (any, error) {
	p := &e.processes
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []map[string]any{}
	for _, pid := range slices.Sorted(maps.Keys(p.running)) {
		all = append(all, map[string]any{"pid": pid, "config": p.running[pid].config})
	}
	return map[string]any{"processes": all}, nil
}

// sendSignal is process.Process/SendSignal. All signals end a process.
func (e *Envd) sendSignal(r *signalRequest) (any, error) {
	if !e.processes.end(r.Process.PID) {
		return nil, &rpcError{http.StatusNotFound, "not_found", "process with pid " + strconv.Itoa(r.Process.PID) + " not found"}
	}
	return struct{}{}, nil
}
