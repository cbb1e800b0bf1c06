// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/pod"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// memoryCases are what an install takes with so many sandboxes in its store.
var memoryCases = []struct {
	name      string
	sandboxes int
}{
	{"memory/1k", 1_000},
	{"memory/10k", 10_000},
	{"memory/100k", 100_000},
}

// oneClaimed of so many sandboxes is claimed, by a claim of its own. The others wait.
const oneClaimed = 10

// interpreterPods is the pod template of a code interpreter, as its users write it.
const interpreterPods = `{"metadata":{"labels":{"app.kubernetes.io/name":"code-interpreter","app.kubernetes.io/part-of":"agents","team":"rollouts"},
	"annotations":{"cluster-autoscaler.kubernetes.io/safe-to-evict":"false"}},
	"spec":{"automountServiceAccountToken":false,"enableServiceLinks":false,"terminationGracePeriodSeconds":5,"runtimeClassName":"gvisor",
	"nodeSelector":{"sandboxes.example.com/pool":"gvisor"},
	"tolerations":[{"key":"sandboxes.example.com/only","operator":"Exists","effect":"NoSchedule"}],
	"securityContext":{"runAsNonRoot":true,"runAsUser":1000,"runAsGroup":1000,"fsGroup":1000,"seccompProfile":{"type":"RuntimeDefault"}},
	"initContainers":[{"name":"files","image":"registry.example.com/agents/files:2.4.1","restartPolicy":"Always",
		"command":["/usr/local/bin/files","--port=9090"],"ports":[{"name":"files","containerPort":9090}],
		"resources":{"requests":{"cpu":"20m","memory":"32Mi"},"limits":{"memory":"128Mi"}},
		"securityContext":{"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true,"capabilities":{"drop":["ALL"]}},
		"volumeMounts":[{"name":"workspace","mountPath":"/workspace"}]}],
	"containers":[{"name":"interpreter","image":"registry.example.com/agents/code-interpreter:3.12.4","workingDir":"/workspace",
		"command":["/opt/interpreter/bin/serve"],"args":["--listen=0.0.0.0:8080","--kernel=python3","--idle-timeout=0"],
		"env":[{"name":"PYTHONUNBUFFERED","value":"1"},{"name":"PIP_INDEX_URL","value":"https://pypi.example.com/simple"},
			{"name":"HTTP_PROXY","value":"http://egress.example.com:3128"},{"name":"HTTPS_PROXY","value":"http://egress.example.com:3128"},
			{"name":"NO_PROXY","value":"localhost,127.0.0.1,.svc"},{"name":"POD_IP","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}}],
		"ports":[{"name":"http","containerPort":8080}],
		"resources":{"requests":{"cpu":"250m","memory":"512Mi"},"limits":{"memory":"2Gi","ephemeral-storage":"4Gi"}},
		"readinessProbe":{"httpGet":{"path":"/healthz","port":"http"},"periodSeconds":1},
		"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}},
		"volumeMounts":[{"name":"workspace","mountPath":"/workspace"},{"name":"tmp","mountPath":"/tmp"}]}],
	"volumes":[{"name":"workspace","emptyDir":{"sizeLimit":"4Gi"}},{"name":"tmp","emptyDir":{"sizeLimit":"1Gi"}}]}}`

// memoryFigures are the memory of the programs of an install, each a process of its own.
type memoryFigures struct {
	Sandboxes    int `json:"stored_sandboxes"`
	StoredClaims int `json:"stored_claims"`
	// StoredBytes is what a sandbox takes in etcd, with its part of the claims.
	StoredBytes number `json:"etcd_bytes_per_sandbox"`
	// PodBytes is what the controller manager keeps of a pod. These programs have no pods.
	PodBytes number `json:"bytes_per_cached_pod"`

	Etcd        footprint `json:"etcd"`
	APIServer   footprint `json:"apiserver"`
	Controllers footprint `json:"controller_manager"`
}

// footprint is the resident memory of a process, in MiB: after its start, when it has come to
// rest, and at most until then. PerSandbox is by how many bytes the latter has grown for each
// sandbox, beyond that of a process without any.
type footprint struct {
	Resident   number `json:"resident_mib"`
	Peak       number `json:"peak_mib"`
	EmptyPeak  number `json:"empty_peak_mib"`
	PerSandbox number `json:"peak_bytes_per_sandbox"`
}

func (b *bench) runMemory(ctx context.Context) error {
	var empty *residents
	for _, c := range memoryCases {
		if !b.wants(c.name) {
			continue
		}
		if empty == nil {
			var err error
			if empty, err = b.measureMemory(ctx, filepath.Join(b.dir, "memory-empty"), nil); err != nil {
				return fmt.Errorf("%s: an empty store: %w", c.name, err)
			}
		}
		r, err := b.runMemoryOf(ctx, c.name, c.sandboxes, empty)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if err := b.report(r); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) runMemoryOf(ctx context.Context, name string, sandboxes int, empty *residents) (*result, error) {
	dir := filepath.Join(b.dir, "memory")
	claims := sandboxes / oneClaimed
	waiting := pool{namespace: "bench", size: sandboxes - claims, pods: interpreterPods}
	example, err := fillWithClaims(ctx, b.settings, dir, waiting, claims)
	if err != nil {
		return nil, err
	}
	full, err := b.measureMemory(ctx, dir, &waiting)
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		return nil, err
	}
	podBytes, err := cachedPodBytes(example, min(sandboxes, cachedSandboxes))
	if err != nil {
		return nil, err
	}
	of := func(full, empty program.Memory) footprint {
		return footprint{
			Resident: mib(full.Resident), Peak: mib(full.Peak), EmptyPeak: mib(empty.Peak),
			PerSandbox: number(float64(full.Peak-empty.Peak) / float64(sandboxes)),
		}
	}
	return &result{Case: name, Clients: 1, memoryFigures: &memoryFigures{
		Sandboxes: sandboxes, StoredClaims: claims,
		StoredBytes: number(float64(full.stored-empty.stored) / float64(sandboxes)),
		PodBytes:    number(podBytes),
		Etcd:        of(full.etcd, empty.etcd),
		APIServer:   of(full.apiServer, empty.apiServer),
		Controllers: of(full.controllers, empty.controllers),
	}}, nil
}

func mib(bytes int64) number { return number(float64(bytes) / (1 << 20)) }

// cachedPodBytes is how much memory each of n pods of a sandbox takes in the cache of the
// controller manager.
func cachedPodBytes(sandbox *v1alpha1.Sandbox, n int) (float64, error) {
	keep := pod.CachedPods().Transform
	kept := make([]any, n)
	before := heapInUse()
	for i := range kept {
		made, err := podtemplate.Pod(sandbox, "58b9c4d5f7")
		if err != nil {
			return 0, err
		}
		typed := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(made.Object, typed); err != nil {
			return 0, fmt.Errorf("pod of a sandbox: %w", err)
		}
		typed.UID = sandbox.UID
		typed.Status = runningStatus(&typed.Spec)
		if kept[i], err = keep(typed); err != nil {
			return 0, err
		}
	}
	grown := heapInUse() - before
	goruntime.KeepAlive(kept)
	return float64(grown) / float64(n), nil
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
