// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// roleVariable makes this program one that the tests start.
const roleVariable = "SANDLOT_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "server":
		os.Exit(beServer())
	case "parent":
		os.Exit(beParent())
	default:
		os.Exit(m.Run())
	}
}

// beServer listens on the address in the first argument, until SIGTERM.
func beServer() int {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer listener.Close()
	<-terminated
	return 0
}

// beParent starts a server on the address in the first argument, with its log in
// the folder of the second, and waits to be killed.
func beParent() int {
	p := newProcess(server(os.Args[1]), os.Args[2])
	if err := p.Launch(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	select {}
}

// server is this program as a server.
func server(address string) command {
	return command{
		name:  "server",
		path:  os.Args[0],
		args:  []string{address},
		env:   []string{roleVariable + "=server"},
		ready: tcp(address),
	}
}

// tcp is a check that a server listens.
func tcp(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// freeAddress is where a test can listen.
func freeAddress(t *testing.T) string {
	t.Helper()
	p, err := loadPorts(filepath.Join(t.TempDir(), "ports"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.release(); err != nil {
			t.Error(err)
		}
	})
	port, err := p.get("test", 0)
	if err != nil {
		t.Fatal(err)
	}
	return address(port)
}
