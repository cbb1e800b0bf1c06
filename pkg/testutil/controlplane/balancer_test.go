// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// named is a server that says its name on every line it is sent.
type named struct {
	net.Listener
	name  string
	ready atomic.Bool
	conns sync.WaitGroup
}

func serveNamed(t *testing.T, name string) *named {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := &named{Listener: listener, name: name}
	s.ready.Store(true)
	s.conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.conns.Go(func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					fmt.Fprintln(conn, name)
				}
			})
		}
	})
	return s
}

func (s *named) check(context.Context) error {
	if !s.ready.Load() {
		return errors.New("not ready")
	}
	return nil
}

// line sends a line and returns the answer.
func line(conn net.Conn) (string, error) {
	if _, err := fmt.Fprintln(conn, "who?"); err != nil {
		return "", err
	}
	said, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", err
	}
	return said[:len(said)-1], nil
}

func TestBalancer(t *testing.T) {
	t.Parallel()
	a, b := serveNamed(t, "a"), serveNamed(t, "b")
	where := freeAddress(t)
	balancer, err := newBalancer(t.Context(), where, []backend{
		{address: a.Addr().String(), ready: a.check},
		{address: b.Addr().String(), ready: b.check},
	})
	if err != nil {
		t.Fatal(err)
	}
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", where)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	// onlyFrom waits until all new connections go to these.
	onlyFrom := func(wanted ...string) {
		t.Helper()
		expect.Eventually(t.Context(), t, func(context.Context) error {
			got := map[string]bool{}
			for range 4 {
				name, err := line(dial())
				if err != nil {
					name = "nobody"
				}
				got[name] = true
			}
			for _, name := range wanted {
				if !got[name] {
					return fmt.Errorf("answers are from %v", got)
				}
			}
			if len(got) != len(wanted) {
				return fmt.Errorf("answers are from %v", got)
			}
			return nil
		})
	}
	onlyFrom("a", "b")
	a.ready.Store(false)
	onlyFrom("b")
	stays := dial()
	if name, err := line(stays); err != nil || name != "b" {
		t.Fatal(name, err)
	}
	a.ready.Store(true)
	b.ready.Store(false)
	onlyFrom("a")
	if name, err := line(stays); err != nil || name != "b" {
		t.Errorf("a connection that was there is with %q now: %v", name, err)
	}
	b.ready.Store(true)
	onlyFrom("a", "b")
	a.Close() // dead, and not yet known to be
	if name, err := line(dial()); err != nil || name != "b" {
		t.Errorf("got %q, %v", name, err)
	}
	b.ready.Store(false)
	a.ready.Store(false)
	onlyFrom("nobody")

	balancer.close()
	if _, err := line(stays); err == nil {
		t.Error("a connection outlives the balancer")
	}
	b.Close()
	a.conns.Wait()
	b.conns.Wait()
}
