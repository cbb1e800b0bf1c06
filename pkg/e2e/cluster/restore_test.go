// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/backup"
	"github.com/sandlot-io/sandlot/pkg/backup/restore"
	"github.com/sandlot-io/sandlot/pkg/install/encryptionkeys"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/load"
)

// disaster is a store that is lost with its volume, and restored from a backup by the
// commands of docs/operations.md, while clients continue trying to claim. The CronJobs, the Jobs
// and all pods of the install are in the cluster; what the kubelet would do for them is done
// by the node of processes of pkg/testutil/controlplane.
type disaster struct {
	site    *site
	sandlot *controlplane.Sandlot
	book    *runbook
}

// TestRestore loses an etcd of its own process.
func TestRestore(t *testing.T) {
	t.Parallel()
	newDisaster(t, "default").run(t)
}

// TestRestoreSingle loses the volume of an API server with its etcd inside.
func TestRestoreSingle(t *testing.T) {
	t.Parallel()
	newDisaster(t, "single").run(t)
}

func newDisaster(t *testing.T, overlay string) *disaster {
	t.Helper()
	s := newSite(t)
	return &disaster{
		site:    s,
		sandlot: s.install(t, controlplane.SandlotOptions{Overlay: overlay, Pods: true}),
		book:    openRunbook(t, s.Kubeconfig()),
	}
}

func (d *disaster) run(t *testing.T) {
	const pool, clients = 20, 6
	ns, s := "disaster", d.site
	s.makeNamespace(t, ns)
	expect.FilledPool(t, s, ns, pool)
	watching := s.follow(t, ns)
	crowd := s.start(t, newLoad(ns))
	crowd.AwaitMore(t, 3*clients)
	before := crowd.Answers()

	d.book.run(t, "backup")
	saved := time.Now()
	crowd.AwaitMore(t, pool+clients) // everything that lay in the pool is claimed
	lost := d.changeAfterBackup(t, ns, before)

	var answered []load.Answer
	watching.miss(t, func() {
		for _, p := range d.sandlot.Processes() {
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		crowd.AwaitOutage(t)
		answered = crowd.Answers()
		// An empty volume replaces the lost one.
		if err := errors.Join(os.RemoveAll(d.sandlot.StoreDir()), os.Mkdir(d.sandlot.StoreDir(), 0o700)); err != nil {
			t.Fatal(err)
		}
		d.book.run(t, "restore")
		d.checkNotAgain(t)
		crowd.AwaitMore(t, clients+1) // all of them at least once, and no client is stuck
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
	d.checkLastBackup(t)
	if d.sandlot.Etcd() != nil { // where it is makes no difference
		d.loseKeys(t)
	}
}

// loseKeys loses the keys of the encryption at rest, and takes them from the backup by the
// commands of docs/operations.md, while everything runs.
func (d *disaster) loseKeys(t *testing.T) {
	t.Helper()
	// The controllers make each of the Secrets again from the other one.
	controllers := d.site.kube.AppsV1().Deployments(controlplane.Namespace)
	if _, err := controllers.Patch(t.Context(), "sandlot-controller-manager", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(context.Context) error {
		for _, pod := range d.pods(t) {
			if strings.HasPrefix(pod.Name, "sandlot-controller-manager-") {
				return fmt.Errorf("pod %s is there", pod.Name)
			}
		}
		return nil
	})
	secrets := d.site.kube.CoreV1().Secrets(controlplane.Namespace)
	lost, err := secrets.Get(t.Context(), encryptionkeys.Secret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{encryptionkeys.Secret, encryptionkeys.CopySecret} {
		if err := secrets.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	before := d.pods(t)
	d.book.run(t, "keys")
	found, err := secrets.Get(t.Context(), encryptionkeys.Secret, metav1.GetOptions{})
	if err != nil || !bytes.Equal(found.Data[encryptionkeys.KeyConfig], lost.Data[encryptionkeys.KeyConfig]) {
		t.Errorf("the keys that came back are not those that were lost: %v", err)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(d.pods(t)))); diff != "" {
		t.Errorf("pods have changed (-before +after):\n%s", diff)
	}
}

// checkNotAgain: attempts of a Job that has restored the store, whose end was not noticed, leave
// it as it is. They have no backup that they could restore.
func (d *disaster) checkNotAgain(t *testing.T) {
	t.Helper()
	job := d.jobWithoutBackup(t)
	before := d.pods(t)
	job.ID = string(d.restoreSecret(t).Data["restoredBy"])
	if err := job.Run(t.Context()); err != nil || job.ID == "" {
		t.Errorf("after its end, Job %q: %v", job.ID, err)
	}
	// As if its pod had been killed when the store ran, and before it could say so.
	id := ""
	for _, pod := range before {
		for _, container := range pod.Status.InitContainerStatuses {
			if container.Name == restore.MemberContainer {
				id = container.State.Terminated.Message
			}
		}
	}
	secret := d.restoreSecret(t)
	secret.Data = map[string][]byte{"jobs": []byte("first 1\nkilled 1\nmistaken 1"), "active": []byte("killed"), "id": []byte(id), "offeredBy": []byte("killed"), "replicas": d.replicas(t, job.Users)}
	if _, err := d.site.kube.CoreV1().Secrets(job.Namespace).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	job.ID = "killed"
	if err := job.Run(t.Context()); err != nil || id == "" {
		t.Errorf("after the restore of %q: %v", id, err)
	}
	if data := d.restoreSecret(t).Data; len(data["id"]) > 0 || string(data["restoredBy"]) != job.ID {
		t.Errorf("the Secret of the restore has %v", data)
	}
	after := d.pods(t)
	for uid, pod := range before {
		if _, there := after[uid]; !there {
			t.Errorf("pod %s was stopped", pod.Name)
		}
	}
	// Jobs that began before it give way, and those that come later find out first that there is
	// no backup, which takes nothing from it.
	for _, attempt := range []struct {
		job  string
		want error
	}{{"first", restore.ErrOvertaken}, {"mistaken", backup.ErrNoBackup}, {"another", backup.ErrNoBackup}, {"killed", nil}} {
		job.ID = attempt.job
		if err := job.Run(t.Context()); !errors.Is(err, attempt.want) {
			t.Errorf("Job %s: %v, want %v", job.ID, err, attempt.want)
		}
	}
}

// jobWithoutBackup is the restore of the install, except for its backups.
func (d *disaster) jobWithoutBackup(t *testing.T) restore.Job {
	t.Helper()
	target, err := backup.OpenTarget(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	job := restore.Job{Client: d.site.kube, Namespace: controlplane.Namespace, Target: target, Members: 1, Clock: clock.RealClock{},
		Store: restore.Workload{Kind: "statefulset", Name: "sandlot-etcd"}, Users: []restore.Workload{{Kind: "deployment", Name: "sandlot-apiserver"}}}
	if d.sandlot.Etcd() == nil {
		job.Store, job.Users = restore.Workload{Kind: "statefulset", Name: "sandlot-apiserver"}, nil
	}
	job.Users = append(job.Users, restore.Workload{Kind: "deployment", Name: "sandlot-controller-manager"})
	return job
}

func (d *disaster) restoreSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret, err := d.site.kube.CoreV1().Secrets(controlplane.Namespace).Get(t.Context(), restore.SecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// replicas are those of Deployments, as a restore remembers them.
func (d *disaster) replicas(t *testing.T, deployments []restore.Workload) []byte {
	t.Helper()
	replicas := map[string]int32{}
	for _, w := range deployments {
		deployment, err := d.site.kube.AppsV1().Deployments(controlplane.Namespace).Get(t.Context(), w.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		replicas[w.String()] = *deployment.Spec.Replicas
	}
	text, err := json.Marshal(replicas)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// pods are the pods of the install by UID, except for those of Jobs.
func (d *disaster) pods(t *testing.T) map[types.UID]corev1.Pod {
	t.Helper()
	list, err := d.site.kube.CoreV1().Pods(controlplane.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "!batch.kubernetes.io/job-name"})
	if err != nil {
		t.Fatal(err)
	}
	pods := map[types.UID]corev1.Pod{}
	for _, pod := range list.Items {
		pods[pod.UID] = pod
	}
	return pods
}

// checkLastBackup looks for the metric that an operator's alert is about.
func (d *disaster) checkLastBackup(t *testing.T) {
	t.Helper()
	metrics, err := d.sandlot.Metrics(scraperOf(t, d.site, metav1.NamespaceDefault).config)
	if err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		job, err := d.site.kube.BatchV1().CronJobs(controlplane.Namespace).Get(ctx, "sandlot-backup", metav1.GetOptions{})
		if err != nil || job.Status.LastSuccessfulTime == nil {
			return errors.Join(err, errors.New("the CronJob knows of no backup"))
		}
		code, text, err := getPage(ctx, metrics, "/metrics")
		if err != nil {
			return err
		}
		want := fmt.Sprintf("sandlot_backup_last_success_timestamp_seconds %g\n", float64(job.Status.LastSuccessfulTime.Unix()))
		if code != http.StatusOK || !strings.Contains(text, want) {
			return fmt.Errorf("%d, not in the metrics: %s", code, want)
		}
		return nil
	})
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

// checkHandedOutOnce requires that no sandbox was given to a user after the
// restore that was given to one before, also where the store has forgotten it.
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
