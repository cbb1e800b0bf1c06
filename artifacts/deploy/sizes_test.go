// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"cmp"
	"strconv"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sandlot-io/sandlot/pkg/memory"
	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
)

const (
	MiB = 1 << 20

	// storedBytes is what a sandbox takes in etcd, with its part of the claims.
	storedBytes = 6400
)

// weight is what a program takes of memory at most, which is when it starts, as the cases
// memory/* of the benchmark measure it: docs/scaling.md has the figures.
type weight struct {
	// empty is what it takes with an empty store, most of which is the program itself.
	empty int64
	// sandbox is by how much that grows with each sandbox.
	sandbox int64
	// loading is what is added to that while the store is read, unless the limit of memory is
	// near: garbage that Go leaves then.
	loading int64
}

var (
	apiServerWeight = weight{empty: 90 * MiB, sandbox: 15_700, loading: 6_300}
	// 11,600, and a half more than the 2,560 that are kept of its pod.
	controllersWeight = weight{empty: 36 * MiB, sandbox: 15_400}
	// Beside the file, whose pages the kernel can take back: the index of the keys, and the
	// last writes.
	etcdWeight = weight{empty: 48 * MiB, sandbox: 1_500}
)

// of is what the program takes with so many sandboxes, and atLimit the same near the limit.
func (w weight) of(sandboxes int64) int64      { return w.atLimit(sandboxes) + sandboxes*w.loading }
func (w weight) atLimit(sandboxes int64) int64 { return w.empty + sandboxes*w.sandbox }

// withRoom is what the program takes where its heap is small beside the limit, which it may grow by a share of
// (memory.Room) before garbage is collected. Half of what it takes at the limit is in use.
func (w weight) withRoom(sandboxes, limit int64) int64 {
	return w.empty + sandboxes*w.sandbox/2 + int64(float64(limit)*memory.Share*memory.Room)
}

func (w weight) plus(other weight) weight {
	return weight{w.empty + other.empty, w.sandbox + other.sandbox, w.loading + other.loading}
}

// TestSizesFitTogether: etcd refuses what does not fit before anything else runs out of memory
// or of disk, and each overlay is requested for as many sandboxes as docs/scaling.md says.
func TestSizesFitTogether(t *testing.T) {
	for overlay, sandboxes := range map[string]int64{"default": 20_000, "single": 20_000, "small": 1_000} {
		t.Run(overlay, func(t *testing.T) {
			objects := render(t, overlay)
			all := workloads(objects)
			store, flag, weights := "sandlot-apiserver", "embedded-etcd-quota-backend-bytes", map[string]weight{
				"sandlot-apiserver": apiServerWeight.plus(etcdWeight), "sandlot-controller-manager": controllersWeight,
			}
			if _, ok := all["sandlot-etcd"]; ok {
				store, flag, weights = "sandlot-etcd", "quota-backend-bytes", map[string]weight{
					"sandlot-apiserver": apiServerWeight, "sandlot-controller-manager": controllersWeight, "sandlot-etcd": etcdWeight,
				}
			}
			quota, err := strconv.ParseInt(given(args(t, objects, all[store]))[flag], 10, 64)
			if err != nil {
				t.Fatalf("--%s: %v", flag, err)
			}
			most := quota / storedBytes
			if most < 2*sandboxes {
				t.Errorf("the quota is for %d sandboxes without any old revision, and the overlay for %d", most, sandboxes)
			}
			for name, weight := range weights {
				resources := all[name].template.Spec.Containers[0].Resources
				if limit := resources.Limits.Memory().Value(); weight.atLimit(most) > limit {
					t.Errorf("%s takes %d MiB when the store is full, of %d MiB", name, weight.atLimit(most)/MiB, limit/MiB)
				}
				takes := max(weight.of(sandboxes), weight.withRoom(sandboxes, resources.Limits.Memory().Value()))
				if request := resources.Requests.Memory().Value(); takes > request {
					t.Errorf("%s takes %d MiB with %d sandboxes, and requests %d MiB", name, takes/MiB, sandboxes, request/MiB)
				}
			}
			// Defragmenting writes the file anew beside the old one. The log is 64 MiB a file.
			if disk := diskOf(t, all[store]); disk < 2*quota+512*MiB {
				t.Errorf("a disk of %d MiB for a quota of %d MiB", disk/MiB, quota/MiB)
			}
		})
	}
}

// TestCompactionBatches checks that the etcd of an install compacts in the same batches as an embedded
// one.
func TestCompactionBatches(t *testing.T) {
	objects := render(t, "default")
	got := given(args(t, objects, workloads(objects)["sandlot-etcd"]))
	if limit := got["compaction-batch-limit"]; limit != strconv.Itoa(embeddedetcd.CompactionBatchLimit) {
		t.Errorf("etcd has --compaction-batch-limit=%s, want %d", limit, embeddedetcd.CompactionBatchLimit)
	}
	if interval := got["compaction-sleep-interval"]; interval != embeddedetcd.CompactionSleepInterval.String() {
		t.Errorf("etcd has --compaction-sleep-interval=%s, want %s", interval, embeddedetcd.CompactionSleepInterval)
	}
}

// TestBackupsFit: all backups that are kept are on their volume, the next one, and what the pods
// of a Job left that were killed while they wrote.
func TestBackupsFit(t *testing.T) {
	for overlay, store := range stores {
		objects := render(t, overlay)
		server := given(args(t, objects, workloads(objects)[store]))
		quota, err := strconv.ParseInt(cmp.Or(server["quota-backend-bytes"], server["embedded-etcd-quota-backend-bytes"]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		job := get[*batchv1.CronJob](objects, backupName).Spec.JobTemplate.Spec
		keep, err := strconv.ParseInt(given(job.Template.Spec.Containers[0].Args[1:])["keep"], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		disk := get[*corev1.PersistentVolumeClaim](objects, backupName).Spec.Resources.Requests.Storage().Value()
		if want := (keep + 1 + int64(*job.BackoffLimit)) * quota; disk < want+disk/20 { // what a file system takes for itself
			t.Errorf("%s: %d MiB for backups, want %d MiB and a twentieth", overlay, disk/MiB, want/MiB)
		}
	}
}

func diskOf(t *testing.T, w workload) int64 {
	t.Helper()
	if len(w.claims) != 1 {
		t.Fatalf("%s has %d volumes of its own", w, len(w.claims))
	}
	return w.claims[0].Spec.Resources.Requests.Storage().Value()
}

// TestSmallIsSmall: all of it in 512 MiB and a quarter of a processor.
func TestSmallIsSmall(t *testing.T) {
	var memoryLimit, cpu resource.Quantity
	for _, w := range workloads(render(t, "small")) {
		for range w.replicas {
			for _, container := range w.template.Spec.Containers {
				memoryLimit.Add(container.Resources.Limits[corev1.ResourceMemory])
				cpu.Add(container.Resources.Requests[corev1.ResourceCPU])
			}
		}
	}
	if memoryLimit.Cmp(resource.MustParse("512Mi")) > 0 || cpu.Cmp(resource.MustParse("250m")) > 0 {
		t.Errorf("the small install may take %s of memory and requests %s of a processor", &memoryLimit, &cpu)
	}
}
