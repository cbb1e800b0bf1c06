// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// link is a TCP proxy between an API server and etcd that can fail in several ways.
type link struct {
	// url is where it listens.
	url      string
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	// refusing: new connections are closed at once. delay and holdAnswers are those of new connections.
	refusing    bool
	delay       time.Duration
	holdAnswers bool
	pipes       map[*pipe]bool
}

// pipe is one connection through a link.
type pipe struct {
	client, server *net.TCPConn
	// requests go to the server, answers to the client.
	requests, answers flow
	// detached: the client is gone, and what it sent reaches the server later.
	detached chan struct{}
}

// flow is one direction of a pipe.
type flow struct {
	to *net.TCPConn

	mu    sync.Mutex
	delay time.Duration
	// holding: bytes are kept in held.
	holding bool
	held    []byte
}

// newLink starts a link to an address. It ends with the test.
func newLink(t testing.TB, target string) *link {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{url: "http://" + listener.Addr().String(), target: target, listener: listener, pipes: map[*pipe]bool{}}
	l.running.Go(l.serve)
	t.Cleanup(func() {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		_ = listener.Close()
		l.cut()
		l.running.Wait()
	})
	return l
}

func (l *link) serve() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		l.running.Go(func() { l.forward(client.(*net.TCPConn)) })
	}
}

// forward serves a connection.
func (l *link) forward(client *net.TCPConn) {
	defer client.Close()
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(context.Background(), "tcp", l.target)
	if err != nil {
		return
	}
	defer conn.Close()
	server := conn.(*net.TCPConn)
	p := &pipe{client: client, server: server, requests: flow{to: server}, answers: flow{to: client}, detached: make(chan struct{})}
	l.mu.Lock()
	if l.closed || l.refusing {
		l.mu.Unlock()
		return
	}
	p.requests.delay, p.answers.delay, p.answers.holding = l.delay, l.delay, l.holdAnswers
	l.pipes[p] = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.pipes, p)
	}()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		p.answers.copyFrom(server)
		_ = client.Close()
	}()
	p.requests.copyFrom(client)
	select {
	case <-p.detached:
	default:
		_ = server.Close()
	}
	<-answered
}

func (f *flow) copyFrom(from *net.TCPConn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			f.send(buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

func (f *flow) send(bytes []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holding {
		f.held = append(f.held, bytes...)
		return
	}
	if f.delay > 0 {
		time.Sleep(f.delay)
	}
	_, _ = f.to.Write(bytes) // the other direction ends with a broken connection
}

func (f *flow) set(delay time.Duration, holding bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delay, f.holding = delay, holding
	if !holding && len(f.held) > 0 {
		_, _ = f.to.Write(f.held)
		f.held = nil
	}
}

// all returns the connections of now.
func (l *link) all() []*pipe {
	l.mu.Lock()
	defer l.mu.Unlock()
	var pipes []*pipe
	for p := range l.pipes {
		pipes = append(pipes, p)
	}
	return pipes
}

// cut closes all connections. What they held is lost.
func (l *link) cut() {
	for _, p := range l.all() {
		_ = p.client.SetLinger(0)
		_ = p.client.Close()
		_ = p.server.Close()
	}
}

// refuse closes all connections, and new ones until refuse(false).
func (l *link) refuse(refusing bool) {
	l.mu.Lock()
	l.refusing = refusing
	l.mu.Unlock()
	if refusing {
		l.cut()
	}
}

// slow delays each packet of all connections, of new ones as well.
func (l *link) slow(delay time.Duration) {
	l.mu.Lock()
	l.delay = delay
	l.mu.Unlock()
	for _, p := range l.all() {
		p.requests.set(delay, false)
		p.answers.set(delay, false)
	}
}

// loseAnswers keeps answers from the server of all connections, of new ones as well. With false,
// these connections end: their answers are lost.
func (l *link) loseAnswers(losing bool) {
	l.mu.Lock()
	l.holdAnswers = losing
	l.mu.Unlock()
	for _, p := range l.all() {
		p.answers.set(0, losing)
	}
	if !losing {
		l.cut()
	}
}

// halfClose ends the requests of all connections. Answers continue.
func (l *link) halfClose() {
	for _, p := range l.all() {
		_ = p.server.CloseWrite()
	}
}

// deliverLate collects the requests of all connections for a moment, closes the connections
// on the client's side, and delivers the requests to the server after a delay. New connections
// work, and are slow: the client can look for its requests before they arrive, and they arrive
// before what it does next.
func (l *link) deliverLate(ctx context.Context, delay time.Duration) {
	pipes := l.all()
	l.slow(delay / 8)
	defer l.slow(0)
	for _, p := range pipes {
		p.requests.set(0, true)
	}
	pause(ctx, 30*time.Millisecond)
	for _, p := range pipes {
		close(p.detached)
		_ = p.client.SetLinger(0)
		_ = p.client.Close()
	}
	pause(ctx, delay)
	for _, p := range pipes {
		p.requests.set(0, false)
	}
	pause(ctx, 200*time.Millisecond) // the server reads them
	for _, p := range pipes {
		_ = p.server.Close()
	}
}

// pause lets some time pass.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
