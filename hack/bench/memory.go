// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/pod"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
	"github.com/sandlot-io/sandlot/pkg/testutil/replicas"
)

// cachedObjects are kept to see what one takes.
const cachedObjects = 10_000

// runStarts starts a server whose store has a large pool. It takes the time, in seconds, the
// median of the rounds, until the program says that it is ready, and until the pool is in
// place. It is when the set, whose spec is changed as soon as the server takes that, has
// a status of its new spec with all of its sandboxes.
func runStarts(t *stage, r *result) {
	dir, p := t.TempDir(), pool{namespace: "bench", size: t.pool}
	t.fill(dir, []pool{p})
	var stored []byte
	t.etcd(filepath.Join(dir, "etcd"), func(client *clientv3.Client) {
		kvs := got(client.Get(t.ctx, sandboxKeys+p.namespace+"/", clientv3.WithPrefix(), clientv3.WithLimit(1))).Kvs
		stored = kvs[0].Value
	})
	var ready, inPlace, cpu []float64
	for round := range min(t.rounds, 3) {
		began := time.Now()
		s := t.server(dir, 1)
		ready = append(ready, time.Since(began).Seconds())
		// The set wants one more than the last time, of which it may start nothing.
		s.scale(t.ctx, p, p.size+1+round)
		s.awaitStock(t.ctx, p)
		inPlace = append(inPlace, time.Since(began).Seconds())
		cpu = append(cpu, processCPU(s.process)/1000)
		s.process.Stop(t)
		logf("%s: ready after %.1f s, pool in place after %.1f s, %.1f s of processor time", r.Case, ready[round], inPlace[round], cpu[round])
	}
	r.set("pool", float64(t.pool))
	r.set("start_ready_s", median(ready))
	r.set("start_pool_s", median(inPlace))
	r.set("start_cpu_s", median(cpu))
	// What a sandbox takes in etcd, and in the memory of a program that keeps it: the API
	// server and the controller manager.
	r.set("bytes_per_stored_sandbox", float64(len(stored)))
	codec := apiserver.NewStorageCodec()
	r.set("bytes_per_cached_sandbox", cachedBytes(cachedObjects, func() any { return got(runtime.Decode(codec, stored)) }))
}

// cachedBytes is how much memory each of n objects takes.
func cachedBytes(n int, object func() any) float64 {
	kept := make([]any, n)
	return heapGrown(kept, func() {
		for i := range kept {
			kept[i] = object()
		}
	}) / float64(n)
}

// interpreterPods is the pod template of a code interpreter, as its users write it.
//
//go:embed interpreter.json
var interpreterPods string

// residents are what the processes of an install take, and how many bytes of etcd's file
// are in use.
type residents struct {
	etcd, apiServer, controllers program.Memory
	stored                       int64
}

// memory measures what the programs of an install take with so many sandboxes in the store, each
// a process of its own. One sandbox of ten is claimed, by a claim of its own. The others wait.
func memory(sandboxes int) func(*stage, *result) {
	return func(t *stage, r *result) {
		if t.empty == nil {
			t.empty = t.measureMemory(t.TempDir(), nil)
		}
		dir, claims := t.TempDir(), sandboxes/10
		waiting := pool{namespace: "bench", size: sandboxes - claims, pods: interpreterPods}
		claimed := pool{namespace: "bench-claimed", size: claims, pods: interpreterPods, claimed: true}
		example := t.fill(dir, []pool{waiting, claimed})[0]
		full := t.measureMemory(dir, &waiting)
		r.set("stored_sandboxes", float64(sandboxes))
		r.set("stored_claims", float64(claims))
		// What a sandbox takes in etcd, with its part of the claims.
		r.set("etcd_bytes_per_sandbox", float64(full.stored-t.empty.stored)/float64(sandboxes))
		// What the controller manager keeps of a pod. These programs have no pods.
		r.set("bytes_per_cached_pod", cachedBytes(min(sandboxes, cachedObjects), func() any { return cachedPod(example) }))
		// Resident memory: when the process has come to rest, and at most until then.
		of := func(name string, full, empty program.Memory) {
			r.setAll(name, counts{
				"resident_mib": float64(full.Resident) / (1 << 20), "peak_mib": float64(full.Peak) / (1 << 20), "empty_peak_mib": float64(empty.Peak) / (1 << 20),
				"peak_bytes_per_sandbox": float64(full.Peak-empty.Peak) / float64(sandboxes),
			})
		}
		of("etcd", full.etcd, t.empty.etcd)
		of("apiserver", full.apiServer, t.empty.apiServer)
		of("controller_manager", full.controllers, t.empty.controllers)
	}
}

// measureMemory runs etcd, API server and controllers, each as a process of its own, on the
// data of a server, until they have come to rest with the pool in place, if there is one.
func (t *stage) measureMemory(dir string, p *pool) *residents {
	etcd, endpoint := t.stand(standEtcd, filepath.Join(dir, "etcd"))
	servers := replicas.New(t, filepath.Dir(t.settings.program))
	replica := servers.Start(t, endpoint)
	controllers := t.program("sandlot-controller-manager", "--kubeconfig="+servers.Kubeconfig(t, replica),
		"--simulate-sandboxes", "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	s := &server{clients: []versioned.Interface{replica.Client}}
	s.measured = []rest.Interface{s.raw(0)}
	if p != nil {
		// What they have is as of now once the status is of a spec of now.
		s.scale(t.ctx, *p, p.size+1)
		s.awaitStock(t.ctx, *p)
	}
	s.idle(t.ctx)
	client := got(clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop(), DialTimeout: 10 * time.Second}))
	defer func() { check(client.Close()) }()
	all := &residents{stored: got(client.Status(t.ctx, endpoint)).DbSizeInUse}
	for to, process := range map[*program.Memory]*program.Process{&all.etcd: etcd, &all.apiServer: replica.Process, &all.controllers: controllers} {
		*to = got(program.ReadMemory(process.Pid()))
	}
	controllers.Stop(t)
	replica.Process.Stop(t)
	etcd.Stop(t)
	return all
}

// cachedPod is what the controller manager keeps of a pod of a sandbox.
func cachedPod(sandbox *v1alpha1.Sandbox) any {
	typed := &corev1.Pod{}
	made := got(podtemplate.Pod(sandbox, "58b9c4d5f7"))
	check(runtime.DefaultUnstructuredConverter.FromUnstructured(made.Object, typed))
	typed.UID = sandbox.UID
	typed.Status = runningStatus(&typed.Spec)
	return got(pod.CachedPods().Transform(typed))
}

// runningStatus is what a kubelet says of a pod that runs well.
func runningStatus(spec *corev1.PodSpec) corev1.PodStatus {
	status := corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.113.27", PodIPs: []corev1.PodIP{{IP: "10.244.113.27"}}, HostIP: "10.0.17.4"}
	for _, condition := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	for _, container := range spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Ready: true, Started: new(true), Image: container.Image, ImageID: container.Image + "@sha256:" + fmt.Sprintf("%064d", 1),
			ContainerID: "containerd://" + fmt.Sprintf("%064d", 2), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		})
	}
	return status
}
