// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "time"

// restartDelay is how long a process that ended by itself stays so.
const restartDelay = time.Second

// retain has the process started again whenever it ends, until it is released.
func (p *Process) retain(r *run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dismiss == nil {
		dismissed := make(chan struct{})
		p.dismiss = dismissed
		p.watchers.Go(func() { p.keep(r, dismissed) })
	}
}

// keep starts the process again whenever it ends, until it is dismissed.
func (p *Process) keep(r *run, dismissed <-chan struct{}) {
	for {
		select {
		case <-dismissed:
			return
		case <-r.exited:
		}
		select {
		case <-dismissed:
			return
		case <-time.After(restartDelay):
		}
		p.mu.Lock()
		select {
		case <-dismissed: // while the lock was waited for
		default:
			if p.current.alive() || p.relaunch() {
				r = p.current
			}
		}
		p.mu.Unlock()
	}
}

// relaunch starts a new life, or fails to, to be tried again. The lock is held.
func (p *Process) relaunch() bool {
	if err := p.launch(); err != nil {
		return false
	}
	p.restarts++
	return true
}

// Restarts returns how often the process was started again because it had ended
// by itself.
func (p *Process) Restarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restarts
}

// release leaves the process alone when it ends, and returns its life of now.
func (p *Process) release() *run {
	p.mu.Lock()
	if p.dismiss != nil {
		close(p.dismiss)
		p.dismiss = nil
	}
	p.mu.Unlock()
	p.watchers.Wait()
	return p.life()
}
