// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
	"github.com/sandlot-io/sandlot/pkg/testutil/replicas"
)

// TestTwoVersionsOnOneStore upgrades two servers from the previous release to this one, and
// goes back, one server after the other, in the middle of a storm of claims of all forms.
// Both versions are side by side on one etcd on the way up and on the way down. What holds
// for one version holds for both together.
func TestTwoVersionsOnOneStore(t *testing.T) {
	t.Parallel()
	previous, err := program.BuildPrevious("sandlot-apiserver", "sandlot-controller-manager")
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := &upgrade{replicas: replicas.New(t, programs, "--sync-window=300ms")}
	for i := range s.servers {
		s.servers[i] = s.replicas.StartOf(t, previous, s.replicas.Etcd[0])
	}
	s.control(t, previous, 1)
	client := s.servers[1].Client
	makeCrashPools(t, client)
	expect.FullPool(t, client.AgentsV1alpha1(), crashNamespace, "big", crashPools["big"])
	s.storm = startStorm(t, seed, s.clients()...)
	few := expect.Many(60, 400)
	s.storm.AwaitMore(t, few)

	// Up: API servers go before controllers.
	s.roll(t, programs, 0)
	s.storm.AwaitMore(t, few)
	s.control(t, previous, 0)
	s.roll(t, programs, 1)
	s.storm.AwaitMore(t, few)
	s.control(t, programs, 0)
	s.storm.AwaitMore(t, few)

	// Down: the other way round.
	s.roll(t, previous, 1)
	s.storm.AwaitMore(t, few)
	s.control(t, previous, 1)
	s.roll(t, previous, 0)
	s.storm.AwaitMore(t, few)
	s.storm.Stop()
	s.storm.checkFailures(t)

	// Both versions find the same, and nothing that was promised is broken.
	awaitCalm(t, s.servers[0].Client)
	checkPromises(t, s.servers[0].Client, s.storm)
	s.roll(t, programs, 0)
	checkPromises(t, s.servers[0].Client, s.storm)
	t.Logf("%d claims answered, %d refused, %d calls failed", len(s.storm.Answers()), len(s.storm.Refusals()), len(s.storm.Failures()))
}

// upgrade is two API servers on one etcd, with controllers, on their way from a version to
// another.
type upgrade struct {
	replicas    *replicas.Replicas
	servers     [2]*replicas.Replica
	controllers *program.Process
	storm       *storm
}

func (s *upgrade) clients() []versioned.Interface {
	return []versioned.Interface{s.servers[0].Client, s.servers[1].Client}
}

// roll replaces a server by one of the programs in a folder. The other one has all the work
// meanwhile.
func (s *upgrade) roll(t *testing.T, programs string, i int) {
	t.Helper()
	s.storm.serve(s.servers[1-i].Client)
	s.servers[i].Process.Stop(t)
	s.servers[i] = s.replicas.StartOf(t, programs, s.replicas.Etcd[0])
	s.storm.serve(s.clients()...)
}

// control replaces the controllers by those of the programs in a folder, as clients of a
// server.
func (s *upgrade) control(t *testing.T, programs string, i int) {
	t.Helper()
	if s.controllers != nil {
		s.controllers.Stop(t)
	}
	s.controllers = program.Run(t, programs, "sandlot-controller-manager",
		"--kubeconfig", s.replicas.Kubeconfig(t, s.servers[i]), "--leader-elect=false",
		"--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--simulate-sandboxes", "--simulated-start-delay=20ms")
}
