// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestMembers makes an etcd of three members, replaces one that has lost its data by the
// commands of docs/operations.md, and makes room.
func TestMembers(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	if _, err := admin(t).SandboxSets(ns).Create(t.Context(), builders.Set("pool", 0), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	members := []*member{newMember(0), newMember(1), newMember(2)}
	var urls string // of peers, as a case of the shell
	for _, m := range members {
		urls += fmt.Sprintf("%s) echo %s;; ", m.name, m.peer)
	}
	book := openRunbook(t, plane.Kubeconfig(), "https://localhost:2379", sandlot.EtcdURL())
	book.blocks["make"] = fmt.Sprintf(`etcdctl $FLAGS snapshot save sandlot.db
url() { case $1 in %sesac; }
MEMBERS="%s %s %s"
cluster=$(for member in $MEMBERS; do echo "$member=$(url "$member")"; done | paste -sd ,)
for member in $MEMBERS; do
  etcdutl snapshot restore sandlot.db --data-dir "restored/$member" \
    --name "$member" --initial-advertise-peer-urls "$(url "$member")" \
    --initial-cluster "$cluster" --initial-cluster-token sandlot
done
`, urls, members[0].name, members[1].name, members[2].name)
	book.run(t, "flags", "make")
	cluster := members[0].name + "=" + members[0].peer
	for _, m := range members[1:] {
		cluster += "," + m.name + "=" + m.peer
	}
	for _, m := range members {
		m.dir = filepath.Join(book.dir, "restored", m.name)
		// The arguments of the StatefulSet, as far as they matter with data.
		m.args = []string{"--initial-cluster=" + cluster, "--initial-cluster-token=sandlot"}
		m.start(t, "--initial-cluster-state=new")
	}
	for _, m := range members {
		m.awaitKey(t, "/sandlot/agents.kruise.io/sandboxsets/"+ns+"/pool")
	}

	lost := members[2]
	lost.kill(t)
	if err := os.RemoveAll(lost.dir); err != nil {
		t.Fatal(err)
	}
	lost.start(t, "--initial-cluster-state=new")
	if said := lost.await(t); !strings.Contains(said, "has already been bootstrapped") {
		t.Errorf("a member without its data says:\n%s", said)
	}
	if err := os.RemoveAll(lost.dir); err != nil {
		t.Fatal(err)
	}
	book.blocks["settings"] = fmt.Sprintf("FLAGS=--endpoints=%s\nMEMBER=%s\nPEER_URL=%s\n", members[0].client, lost.name, lost.peer)
	book.run(t, "settings", "member")
	lost.start(t, "--initial-cluster-state=existing")
	lost.awaitKey(t, "/sandlot/agents.kruise.io/sandboxsets/"+ns+"/pool")
	book.blocks["fill"] = "etcdctl $FLAGS put /something else\n"
	book.run(t, "settings", "fill", "space", "disarm")
	lost.awaitKey(t, "/sandlot/agents.kruise.io/sandboxsets/"+ns+"/pool")
}

// member is a member of an etcd.
type member struct {
	name, client, peer, dir string

	args   []string
	cmd    *exec.Cmd
	out    bytes.Buffer
	exited chan struct{}
	once   sync.Once
}

func newMember(i int) *member {
	return &member{
		name:   fmt.Sprintf("sandlot-etcd-%d", i),
		client: fmt.Sprintf("http://127.11.1.%d:2379", i+1),
		peer:   fmt.Sprintf("http://127.11.1.%d:2380", i+1),
	}
}

func (m *member) start(t *testing.T, args ...string) {
	t.Helper()
	m.out.Reset()
	m.cmd = exec.CommandContext(t.Context(), filepath.Join(repository(t), "bin", "etcd"), append(append([]string{
		"--name=" + m.name, "--data-dir=" + m.dir, "--log-level=warn",
		"--listen-client-urls=" + m.client, "--advertise-client-urls=" + m.client,
		"--listen-peer-urls=" + m.peer, "--initial-advertise-peer-urls=" + m.peer,
	}, m.args...), args...)...)
	m.cmd.Stdout, m.cmd.Stderr = &m.out, &m.out
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	m.exited = exited
	go func() {
		defer close(exited)
		_ = m.cmd.Wait() // what it said is in out
	}()
	m.once.Do(func() { t.Cleanup(func() { <-m.exited }) }) // ended by the context
}

func (m *member) kill(t *testing.T) {
	t.Helper()
	if err := m.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-m.exited
}

// await waits until the member ends by itself, and returns what it said.
func (m *member) await(t *testing.T) string {
	t.Helper()
	expect.Eventually(t.Context(), t, func(context.Context) error {
		select {
		case <-m.exited:
			return nil
		default:
			return errors.New("etcd has not ended")
		}
	})
	return m.out.String()
}

// awaitKey waits until the member has a key in its own data.
func (m *member) awaitKey(t *testing.T, key string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		etcdctl := filepath.Join(repository(t), "bin", "etcdctl")
		out, err := exec.CommandContext(ctx, etcdctl, "--endpoints="+m.client, "get", "--consistency=s", "--keys-only", key).CombinedOutput()
		if err != nil || !strings.Contains(string(out), key) {
			return fmt.Errorf("%s is not on %s: %w\n%s", key, m.name, errors.Join(err, errors.New("it says")), out)
		}
		return nil
	})
}
