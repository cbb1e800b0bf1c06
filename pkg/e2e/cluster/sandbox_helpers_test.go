// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const smallTemplate = `{"spec":{"containers":[{"name":"main","image":"busybox:1"}]}}`

// makeSandbox creates a sandbox that belongs to no set.
func (c *clients) makeSandbox(t testing.TB, namespace, name, template string, changes ...func(*v1alpha1.Sandbox)) *v1alpha1.Sandbox {
	t.Helper()
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: name}}
	sandbox.Spec.Template = &runtime.RawExtension{Raw: []byte(template)}
	for _, change := range changes {
		change(sandbox)
	}
	made, err := c.Sandboxes(namespace).Create(t.Context(), sandbox, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating a sandbox: %v", err)
	}
	return made
}

// awaitSandbox waits until a sandbox is as it should be, and returns it.
func (c *clients) awaitSandbox(t testing.TB, namespace, name string, check func(*v1alpha1.Sandbox) error) *v1alpha1.Sandbox {
	t.Helper()
	var sandbox *v1alpha1.Sandbox
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		var err error
		if sandbox, err = c.Sandboxes(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if err = check(sandbox); err != nil {
			return fmt.Errorf("%w: %+v", err, sandbox.Status)
		}
		return nil
	})
	return sandbox
}

// inPhase is a check that a sandbox is in a phase and its status up to date.
func inPhase(phase v1alpha1.SandboxPhase) func(*v1alpha1.Sandbox) error {
	return func(sandbox *v1alpha1.Sandbox) error {
		if sandbox.Status.Phase != phase || sandbox.Status.ObservedGeneration != sandbox.Generation {
			return fmt.Errorf("not %s at generation %d", phase, sandbox.Generation)
		}
		return nil
	}
}

// hasCondition is a check that a sandbox has a condition.
func hasCondition(kind string, status metav1.ConditionStatus, reason string) func(*v1alpha1.Sandbox) error {
	return func(sandbox *v1alpha1.Sandbox) error {
		got := meta.FindStatusCondition(sandbox.Status.Conditions, kind)
		if got == nil || got.Status != status || got.Reason != reason {
			return fmt.Errorf("no condition %s=%s with reason %s", kind, status, reason)
		}
		return nil
	}
}

// isReady is a check that a sandbox runs and is ready.
func isReady(sandbox *v1alpha1.Sandbox) error {
	if err := inPhase(v1alpha1.SandboxRunning)(sandbox); err != nil {
		return err
	}
	return hasCondition(v1alpha1.SandboxConditionReady, metav1.ConditionTrue, v1alpha1.ReasonPodReady)(sandbox)
}

// patchSandbox changes a sandbox by a JSON merge patch.
func (c *clients) patchSandbox(t testing.TB, namespace, name, patch string) *v1alpha1.Sandbox {
	t.Helper()
	sandbox, err := c.Sandboxes(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("patching a sandbox with %s: %v", patch, err)
	}
	return sandbox
}

// awaitEvent waits for an event about a sandbox and returns it.
func (c *clients) awaitEvent(t testing.TB, sandbox *v1alpha1.Sandbox, kind, reason string) *eventsv1.Event {
	t.Helper()
	var found *eventsv1.Event
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		list, err := c.kube.EventsV1().Events(sandbox.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.UID == sandbox.UID && e.Reason == reason && e.Type == kind
		})
		if i < 0 {
			return fmt.Errorf("no event %s %s about sandbox %s", kind, reason, sandbox.Name)
		}
		found = &list.Items[i]
		return nil
	})
	return found
}

// ofCluster is a client of what clears lost nodes, which may delete pods of sandboxes.
func ofCluster(t testing.TB) kubernetes.Interface {
	t.Helper()
	return impersonating(t, "system:serviceaccount:kube-system:node-controller")
}

// impersonating is a client of kube-apiserver that acts for another user.
func impersonating(t testing.TB, user string, groups ...string) kubernetes.Interface {
	t.Helper()
	config := plane.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// controllerManager is the user of our controllers.
const controllerManager = "system:serviceaccount:" + controlplane.Namespace + ":sandlot-controller-manager"

// awaitNoPod waits until a pod is gone.
func (c *clients) awaitNoPod(t testing.TB, namespace, name string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		list, err := c.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err == nil && len(list.Items) > 0 {
			return fmt.Errorf("pod %s is there in phase %s, deleted %v", name, list.Items[0].Status.Phase, list.Items[0].DeletionTimestamp)
		}
		return err
	})
}

// write is a successful write in an audit log.
type write struct{ verb, resource string }

// writesIn counts the successful writes in a namespace that are in audit logs,
// and returns them in the order of each log.
func writesIn(t testing.TB, namespace string, logs ...string) (map[write]int, []auditv1.Event) {
	t.Helper()
	return answersIn(t, namespace, func(code int32) bool { return code < 300 }, logs...)
}

// withRotated are logs with what became too long of them, and has another name now.
func withRotated(t testing.TB, logs []string) []string {
	t.Helper()
	var all []string
	for _, path := range logs {
		rotated, err := filepath.Glob(strings.TrimSuffix(path, ".log") + "-2*.log")
		if err != nil {
			t.Fatal(err)
		}
		all = append(append(all, rotated...), path)
	}
	return all
}

// conflictsIn counts the writes in a namespace that met another version, or
// another object, than they were for.
func conflictsIn(t testing.TB, namespace string, logs ...string) map[write]int {
	t.Helper()
	counts, _ := answersIn(t, namespace, func(code int32) bool { return code == http.StatusConflict }, logs...)
	return counts
}

// answersIn counts the writes in a namespace that were answered with such a code.
// Dry runs are none.
func answersIn(t testing.TB, namespace string, such func(code int32) bool, logs ...string) (map[write]int, []auditv1.Event) {
	t.Helper()
	counts, events := map[write]int{}, []auditv1.Event{}
	// Most lines are about other namespaces, and slow to read.
	of := []byte(`"namespace":` + strconv.Quote(namespace))
	for _, path := range withRotated(t, logs) {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			if !bytes.Contains(lines.Bytes(), of) {
				continue
			}
			var event auditv1.Event
			if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
				continue // the last line is still being written
			}
			if event.Stage != auditv1.StageResponseComplete || event.ObjectRef == nil || event.ObjectRef.Namespace != namespace ||
				slices.Contains([]string{"get", "list", "watch"}, event.Verb) || event.ResponseStatus == nil || !such(event.ResponseStatus.Code) ||
				strings.Contains(event.RequestURI, "dryRun=") {
				continue
			}
			counts[writeOf(&event)]++
			events = append(events, event)
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return counts, events
}

// writesOf counts the writes of what has a name.
func writesOf(t testing.TB, namespace, name string, logs []string) map[write]int {
	t.Helper()
	_, events := writesIn(t, namespace, logs...)
	counts := map[write]int{}
	for i := range events {
		if events[i].ObjectRef.Name == name {
			counts[writeOf(&events[i])]++
		}
	}
	return counts
}

func writeOf(event *auditv1.Event) write {
	resource := event.ObjectRef.Resource
	if sub := event.ObjectRef.Subresource; sub != "" {
		resource += "/" + sub
	}
	return write{event.Verb, resource}
}

// ownLogs are the audit logs of the replicas of our API server.
func ownLogs() []string {
	logs := make([]string, len(sandlot.APIServers()))
	for i := range logs {
		logs[i] = sandlot.AuditLog(i)
	}
	return logs
}

// volume makes a PersistentVolume that one claim can be bound to.
func (c *clients) volume(t testing.TB, namespace, claim string) {
	t.Helper()
	_, err := c.kube.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + claim},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nonexistent"}},
			ClaimRef:               &corev1.ObjectReference{Namespace: namespace, Name: claim},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating a volume: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), expect.Patience)
		defer cancel()
		if err := c.kube.CoreV1().PersistentVolumes().Delete(ctx, namespace+"-"+claim, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting a volume: %v", err)
		}
	})
}
