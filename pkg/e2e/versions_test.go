// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/store/format"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
	"github.com/sandlot-io/sandlot/pkg/testutil/replicas"
)

// TestTwoVersionsOnOneStore upgrades two servers from the previous release to this one, and
// goes back, one server after the other, in the middle of a storm of claims of all forms.
// Both versions are side by side on one etcd on the way up and on the way down. What holds
// for one version holds for both together. Objects stay JSON, which the previous release reads.
func TestTwoVersionsOnOneStore(t *testing.T) {
	t.Parallel()
	previous, err := program.BuildPrevious("sandlot-apiserver", "sandlot-controller-manager")
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := &upgrade{replicas: replicas.New(t, programs, "--sync-window=300ms", "--storage-media-type=application/json")}
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

// TestBackFromProtobuf: when a server of this version has stored all objects as JSON, as docs/versions.md
// says, the previous release, which cannot read protobuf, reads each of them.
func TestBackFromProtobuf(t *testing.T) {
	t.Parallel()
	previous, err := program.BuildPrevious("sandlot-apiserver", "sandlot-controller-manager")
	if err != nil {
		t.Fatal(err)
	}
	r := replicas.New(t, programs)
	server := r.Start(t, r.Etcd[0])
	server.SetOf(t, server.Template(t, "default", "base"), "patched", `{"metadata":{"annotations":{"a":"< & >"}}}`, 0)
	server.Stock(t, server.Set(t, "default", "pool", 4), 0, 4)
	if _, err := server.Client.AgentsV1alpha1().SandboxClaims("default").Create(t.Context(), builders.Claim("pool", 3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := everything(t, server.Client)
	server.Process.Stop(t)

	back := r.Start(t, r.Etcd[0], "--storage-media-type=application/json")
	client, err := clientv3.New(clientv3.Config{Endpoints: r.Etcd, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		stored, _, err := format.Read(ctx, client, options.EtcdPrefix, "test")
		if err == nil && stored.Format != format.Writes {
			err = fmt.Errorf("the store has format %d", stored.Format)
		}
		return err
	})
	back.Process.Stop(t)
	if diff := cmp.Diff(want, everything(t, r.StartOf(t, previous, r.Etcd[0]).Client)); diff != "" {
		t.Errorf("the previous release reads (-before +after):\n%s", diff)
	}
}

// everything returns the objects of all kinds, without their versions.
func everything(t *testing.T, client versioned.Interface) []string {
	t.Helper()
	var all []string
	for _, resource := range []string{"sandboxclaims", "sandboxes", "sandboxsets", "sandboxtemplates"} {
		answer, err := client.AgentsV1alpha1().RESTClient().Get().AbsPath(groupPath, resource).Do(t.Context()).Raw()
		if err != nil {
			t.Fatal(err)
		}
		var list unstructured.UnstructuredList
		if err := list.UnmarshalJSON(answer); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			list.Items[i].SetResourceVersion("")
			text, err := list.Items[i].MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(text))
		}
	}
	return all
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
