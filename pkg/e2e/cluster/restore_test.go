// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/load"
)

// disaster is a store that is lost, and restored from a backup, by the commands of
// docs/operations.md, while clients go on trying to claim.
type disaster struct {
	site    *site
	sandlot *controlplane.Sandlot
	book    *runbook
	// backup makes the backup, restore makes the data of it again in the store's
	// folder, which is empty.
	backup, restore func(t *testing.T)
}

// TestRestore loses an etcd of its own process.
func TestRestore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := &disaster{site: s, sandlot: s.install(t, controlplane.SandlotOptions{})}
	data := filepath.Join(d.sandlot.StoreDir(), "data")
	d.book = openRunbook(t, s.Kubeconfig(),
		"https://localhost:2379", d.sandlot.EtcdURL(),
		"127.0.0.1:123", "127.11.0.1:123", // an address that no other test listens at
		`"sandlot-etcd-0 sandlot-etcd-1 sandlot-etcd-2"`, d.sandlot.Etcd().Name(),
	)
	d.backup = func(t *testing.T) { d.book.run(t, "backup") }
	d.restore = func(t *testing.T) {
		d.book.run(t, "pools", "members")
		move(t, filepath.Join(d.book.dir, "restored", d.sandlot.Etcd().Name()), data)
	}
	d.run(t, data)
}

// TestRestoreSingle loses the volume of an API server with its etcd inside.
func TestRestoreSingle(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := &disaster{site: s, sandlot: s.install(t, controlplane.SandlotOptions{Overlay: "single"})}
	data := filepath.Join(d.sandlot.StoreDir(), "data")
	d.book = openRunbook(t, s.Kubeconfig(),
		"127.0.0.1:123", "127.11.0.2:123",
		"etcdutl snapshot restore sandlot.db", "etcdutl snapshot restore sandlot.db --skip-hash-check",
	)
	archive := filepath.Join(d.book.dir, "archive")
	d.backup = func(t *testing.T) { // cold
		server := d.sandlot.APIServers()[0]
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(archive, os.DirFS(data)); err != nil {
			t.Fatal(err)
		}
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	d.restore = func(t *testing.T) {
		move(t, filepath.Join(archive, "etcd", "member", "snap", "db"), filepath.Join(d.book.dir, "sandlot.db"))
		if err := os.RemoveAll(filepath.Join(archive, "etcd")); err != nil {
			t.Fatal(err)
		}
		d.book.run(t, "pools", "single")
		move(t, archive, data) // the rest of the folder
		move(t, filepath.Join(d.book.dir, "restored", "etcd"), filepath.Join(data, "etcd"))
	}
	d.run(t, data)
}

func (d *disaster) run(t *testing.T, data string) {
	const pool, clients = 20, 6
	ns, s := "disaster", d.site
	s.makeNamespace(t, ns)
	expect.FilledPool(t, s, ns, pool)
	watching := s.follow(t, ns)
	crowd := s.start(t, newLoad(ns))
	crowd.AwaitMore(t, 3*clients)
	before := crowd.Answers()

	d.backup(t)
	saved := time.Now()
	crowd.AwaitMore(t, pool+clients) // everything that lay in the pool is claimed
	lost := d.changeAfterBackup(t, ns, before)

	var answered []load.Answer
	watching.miss(t, func() {
		for _, p := range d.processes() {
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		answered = crowd.Answers()
		if err := os.RemoveAll(data); err != nil {
			t.Fatal(err)
		}
		d.restore(t)
		for _, p := range d.processes() {
			if err := p.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		crowd.AwaitMore(t, clients+1) // all of them at least once, and nobody is stuck
	})
	crowd.Stop()

	d.checkLost(t, ns)
	w := s.awaitCalm(t, ns, pool, lost)
	watching.awaitSame(t)
	after := crowd.Answers()[len(answered):]
	w.check(t, d.surviving(t, w, before, answered, after, saved), lost)
	if sandbox := w.sandboxes[lost]; sandbox == nil || sandbox.Status.Phase != v1alpha1.SandboxFailed {
		t.Errorf("sandbox %s, which was deleted after the backup, is %+v", lost, sandbox)
	}
	checkHandedOutOnce(t, answered, after)
}

// processes are those of Sandlot, in the order of their start.
func (d *disaster) processes() []*controlplane.Process {
	var all []*controlplane.Process
	if etcd := d.sandlot.Etcd(); etcd != nil {
		all = append(all, etcd)
	}
	return append(append(all, d.sandlot.APIServers()...), d.sandlot.Controllers())
}

// changeAfterBackup changes what the backup does not know of: another set is made,
// with pods, and a sandbox that was claimed before is deleted, whose name it
// returns.
func (d *disaster) changeAfterBackup(t *testing.T, ns string, before []load.Answer) string {
	t.Helper()
	if _, err := d.site.SandboxSets(ns).Create(t.Context(), builders.Set("late", 3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, d.site, ns, "late", 3)
	lost := sandboxNames(before[0].Claim)[0]
	if err := d.site.Sandboxes(ns).Delete(t.Context(), lost, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := d.site.kube.CoreV1().Pods(ns).Get(ctx, lost, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("pod %s is still there", lost))
	})
	return lost
}

// checkLost requires that what came after the backup is gone, and stays so.
func (d *disaster) checkLost(t *testing.T, ns string) {
	t.Helper()
	if set, err := d.site.SandboxSets(ns).Get(t.Context(), "late", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a set made after the backup is there: %v, %v", set, err)
	}
}

// surviving returns the answers that have to hold after the restore: those from
// before the backup and those after the restore. What was begun after the backup
// must not be there. The rest may be: if it was waiting at the time of the backup,
// it waits again and gets other sandboxes.
func (d *disaster) surviving(t *testing.T, w world, before, all, after []load.Answer, saved time.Time) []load.Answer {
	t.Helper()
	answers := slices.Concat(before, after)
	for _, answer := range all[len(before):] {
		stored := w.claims[answer.Claim.Name]
		switch {
		case stored == nil:
		case answer.Began.After(saved):
			t.Errorf("claim %s was made after the backup, and is there", answer.Claim.Name)
		default:
			answer.Claim = stored
			answers = append(answers, answer)
		}
	}
	return answers
}

// checkHandedOutOnce requires that no sandbox was given to anybody after the
// restore that was given to somebody before, also where the store has forgotten
// it.
func checkHandedOutOnce(t *testing.T, before, after []load.Answer) {
	t.Helper()
	holders := map[string]*v1alpha1.SandboxClaim{}
	for _, answer := range before {
		for _, name := range sandboxNames(answer.Claim) {
			holders[name] = answer.Claim
		}
	}
	for _, answer := range after {
		for _, name := range sandboxNames(answer.Claim) {
			if first := holders[name]; first != nil && first.UID != answer.Claim.UID {
				t.Errorf("sandbox %s was given to claim %s and, after the restore, to claim %s", name, first.Name, answer.Claim.Name)
			}
		}
	}
}

// TestFilesPod has the Pod that brings data to a volume judged by the server: its
// namespace takes restricted ones only.
func TestFilesPod(t *testing.T) {
	t.Parallel()
	book := openRunbook(t, plane.Kubeconfig(), "apply -f -", "apply --dry-run=server -f -",
		`kubectl -n sandlot-system wait --for=condition=Ready "pod/files-$1" --timeout=5m`, "true")
	book.blocks["call"] = "files data-sandlot-etcd-0\n"
	if out := book.run(t, "files", "call"); !strings.Contains(out, "pod/files-data-sandlot-etcd-0 created") || strings.Contains(out, "Warning") {
		t.Errorf("the server says:\n%s", out)
	}
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
