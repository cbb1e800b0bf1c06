// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
	"github.com/sandlot-io/sandlot/pkg/testutil/replicas"
)

// serverCount is how many API servers there are.
const serverCount = 3

// cluster is API servers and a controller manager on one etcd, a process each. A process that
// ends is started again, as a kubelet would do.
type cluster struct {
	etcd        *member
	servers     []*server
	controllers *member
	// direct is a client of etcd that no fault of a link reaches.
	direct *clientv3.Client
}

// server is an API server, and its link to etcd.
type server struct {
	*replicas.Replica
	*member
	link *link
}

// member is a process that is started again whenever it ends.
type member struct {
	name  string
	start func() *program.Process

	mu      sync.Mutex
	process *program.Process
	// down: it is not to be started. ended is how often it ended unexpectedly.
	down  bool
	ended int
	// lives are all processes so far.
	lives []*program.Process
}

// startCluster starts all of it, of the programs in a folder, and returns when it is ready.
func startCluster(t *testing.T, folder string) *cluster {
	t.Helper()
	path, err := controlplane.FindProgram("etcd")
	if err != nil {
		t.Fatal(err)
	}
	var supervised sync.WaitGroup
	t.Cleanup(supervised.Wait)
	supervise := func(m *member) *member {
		m.ensure()
		supervised.Go(func() { m.supervise(t.Context()) }) // which ends before processes are killed
		return m
	}

	c := &cluster{}
	address, peers, data := freeAddress(t), freeAddress(t), t.TempDir()
	c.etcd = supervise(&member{name: "etcd", start: func() *program.Process {
		// A process that is killed loses nothing that it has written, so there is no need to sync.
		return program.Run(t, strings.TrimSuffix(path, "/etcd"), "etcd", "--name=etcd", "--data-dir="+data, "--unsafe-no-fsync",
			"--listen-client-urls=http://"+address, "--advertise-client-urls=http://"+address,
			"--listen-peer-urls=http://"+peers, "--initial-advertise-peer-urls=http://"+peers,
			"--initial-cluster=etcd=http://"+peers, "--log-level=error")
	}})
	c.direct, err = clientv3.New(clientv3.Config{
		Endpoints: []string{"http://" + address}, Logger: zap.NewNop(), DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.direct.Close() })

	shared := replicas.NewOn(t, []string{"http://" + address}, folder, "--sync-window=300ms")
	for i := range serverCount {
		s := &server{link: newLink(t, address)}
		s.Replica = shared.Prepare(t, s.link.url)
		s.member = supervise(&member{name: fmt.Sprintf("server %d", i), start: func() *program.Process {
			s.Launch(t)
			return s.Replica.Process
		}})
		c.servers = append(c.servers, s)
	}
	// It prefers the server that is stopped last.
	service, err := controlplane.Forward(t.Context(), "127.0.0.1:0", func() (addresses []string) {
		for i := range c.servers {
			addresses = append(addresses, strings.TrimPrefix(c.servers[serverCount-1-i].Config.Host, "https://"))
		}
		return addresses
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	kubeconfig := shared.KubeconfigOf(t, "https://"+service.Address())
	c.awaitReady(t)
	c.controllers = supervise(&member{name: "controllers", start: func() *program.Process {
		return program.Run(t, programs, "sandlot-controller-manager", "--kubeconfig", kubeconfig, "--leader-elect=false",
			"--metrics-bind-address=0", "--health-probe-bind-address=0", "--refill-quiet-period=-1s",
			"--simulate-sandboxes", "--simulated-start-delay=20ms")
	}})
	return c
}

// awaitReady waits until all API servers are ready.
func (c *cluster) awaitReady(t *testing.T) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		for _, s := range c.servers {
			if err := s.Ready(ctx); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		return nil
	})
}

// checkProcesses requires that no process has ended in a panic.
func (c *cluster) checkProcesses(t *testing.T) {
	t.Helper()
	members := []*member{c.etcd, c.controllers}
	for _, s := range c.servers {
		members = append(members, s.member)
	}
	for _, m := range members {
		m.mu.Lock()
		t.Logf("%s had %d lives, and ended %d times unexpectedly", m.name, len(m.lives), m.ended)
		for _, life := range m.lives {
			output := life.Stderr.String()
			for _, sign := range []string{"panic:", "fatal error:", "DATA RACE"} {
				if _, after, found := strings.Cut(output, sign); found {
					t.Errorf("%s: %s%.2000s", m.name, sign, after)
				}
			}
		}
		m.mu.Unlock()
	}
}

// ensure starts the process unless it runs or is to be down.
func (m *member) ensure() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down || m.process != nil && m.process.Alive() {
		return
	}
	if m.process != nil {
		m.ended++
	}
	m.process = m.start()
	m.lives = append(m.lives, m.process)
}

func (m *member) supervise(ctx context.Context) {
	for ctx.Err() == nil {
		m.ensure()
		pause(ctx, 20*time.Millisecond)
	}
}

// kill kills the process, and starts it again after some time.
func (m *member) kill(ctx context.Context, down time.Duration) {
	m.mu.Lock()
	m.down = true
	m.process.Kill()
	m.process = nil
	m.mu.Unlock()
	pause(ctx, down)
	m.mu.Lock()
	m.down = false
	m.mu.Unlock()
	m.ensure()
}

// stop stops the process with SIGSTOP, and continues it after some time.
func (m *member) stop(ctx context.Context, stopped time.Duration) error {
	m.mu.Lock()
	process := m.process
	m.mu.Unlock()
	if process == nil || !process.Alive() {
		return errors.New("it does not run")
	}
	if err := syscall.Kill(process.Pid(), syscall.SIGSTOP); err != nil {
		return err
	}
	pause(ctx, stopped)
	if !process.Alive() {
		return errors.New("it was killed while it was stopped")
	}
	return syscall.Kill(process.Pid(), syscall.SIGCONT)
}

// freeAddress returns an address that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
