// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	sandboxclient "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/realnode"
)

// story is what a test has for itself: a namespace of the cluster, and clients of an admin.
type story struct {
	*testing.T
	sandboxclient.AgentsV1alpha1Interface
	kube      kubernetes.Interface
	namespace string
}

// begin returns a new namespace, or skips the test where there is no real node.
func begin(t *testing.T) *story {
	t.Helper()
	if missing != nil {
		t.Skip(missing)
	}
	agents, err := versioned.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: strings.ToLower(t.Name()) + "-"}}
	made, err := kube.CoreV1().Namespaces().Create(t.Context(), wanted, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), expect.Patience) // that of the test has ended
		defer cancel()
		if err := kube.CoreV1().Namespaces().Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	s := &story{T: t, AgentsV1alpha1Interface: agents.AgentsV1alpha1(), kube: kube, namespace: made.Name}
	s.eventually(func(ctx context.Context) error {
		_, err := kube.CoreV1().ServiceAccounts(made.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return s
}

func (s *story) eventually(check func(context.Context) error) {
	s.Helper()
	expect.Eventually(s.Context(), s.T, check)
}

// shellPod is a template whose container runs a command by way of sandlot-runtime.
func shellPod(command ...string) corev1.PodSpec {
	mount := corev1.VolumeMount{Name: "sandlot-runtime", MountPath: "/opt/sandlot"}
	return corev1.PodSpec{
		InitContainers: []corev1.Container{{
			Name: "runtime", Image: realnode.RuntimeImage, ImagePullPolicy: corev1.PullNever,
			Args: []string{"install", mount.MountPath}, VolumeMounts: []corev1.VolumeMount{mount},
		}},
		Containers: []corev1.Container{{
			Name: "main", Image: realnode.ShellImage, ImagePullPolicy: corev1.PullNever,
			Command:      append([]string{mount.MountPath + "/sandlot-runtime", "serve", "--"}, command...),
			VolumeMounts: []corev1.VolumeMount{mount},
		}},
		Volumes: []corev1.Volume{{Name: mount.Name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}
}

// fill makes the set "pool" of a template, and waits until it is full.
func (s *story) fill(replicas int32, spec corev1.PodSpec, changes ...func(*v1alpha1.SandboxSet)) {
	s.Helper()
	s.create(replicas, spec, changes...)
	expect.FullPool(s, s, s.namespace, "pool", replicas)
}

// create makes the set "pool" of a template.
func (s *story) create(replicas int32, spec corev1.PodSpec, changes ...func(*v1alpha1.SandboxSet)) {
	s.Helper()
	template, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		s.Fatal(err)
	}
	set := builders.Set("pool", replicas)
	set.Spec.Template = &runtime.RawExtension{Raw: template}
	for _, change := range changes {
		change(set)
	}
	if _, err := s.SandboxSets(s.namespace).Create(s.Context(), set, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// claimName is the name of the claim of each test.
const claimName = "mine"

// variable is the value of the variable that a claim has.
const variable = "of-mine"

// claim claims one sandbox, with a variable for its runtime unless that is empty, and returns its
// name.
func (s *story) claim(value string, changes ...func(*v1alpha1.SandboxClaim)) string {
	s.Helper()
	wanted := builders.Claim(claimName, 1)
	wanted.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
	for _, change := range changes {
		change(wanted)
	}
	if value != "" {
		wanted.Spec.EnvVars = map[string]string{"VARIABLE": value}
	}
	if _, err := s.SandboxClaims(s.namespace).Create(s.Context(), wanted, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	var claim *v1alpha1.SandboxClaim
	s.eventually(func(ctx context.Context) (err error) {
		claim, err = s.SandboxClaims(s.namespace).Get(ctx, claimName, metav1.GetOptions{})
		if err == nil && claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
			err = fmt.Errorf("the claim is %+v", claim.Status)
		}
		return err
	})
	return expect.Claimed(s, claim, 1)[0]
}

// sandbox waits until a sandbox is as check wants it.
func (s *story) sandbox(name string, check func(*v1alpha1.Sandbox) error) *v1alpha1.Sandbox {
	s.Helper()
	var sandbox *v1alpha1.Sandbox
	s.eventually(func(ctx context.Context) (err error) {
		if sandbox, err = s.Sandboxes(s.namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return check(sandbox)
	})
	return sandbox
}

// watch watches the sandboxes of the namespace from now on. A loop over their changes fails the test unless it
// ends by itself.
func (s *story) watch(options metav1.ListOptions) iter.Seq[*v1alpha1.Sandbox] {
	s.Helper()
	changes, err := s.Sandboxes(s.namespace).Watch(s.Context(), options)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(changes.Stop)
	return func(yield func(*v1alpha1.Sandbox) bool) {
		defer time.AfterFunc(expect.Patience, changes.Stop).Stop()
		for change := range changes.ResultChan() {
			sandbox, ok := change.Object.(*v1alpha1.Sandbox)
			if !ok {
				s.Fatalf("a watch has %+v", change.Object)
			}
			if !yield(sandbox) {
				return
			}
		}
		s.Fatal("the watch ended before what it was to show")
	}
}

// pod returns the pod of a sandbox.
func (s *story) pod(name string) *corev1.Pod {
	s.Helper()
	pod, err := s.kube.CoreV1().Pods(s.namespace).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return pod
}

// awaitNoPod waits until there is no pod of a UID.
func (s *story) awaitNoPod(gone *corev1.Pod) {
	s.Helper()
	s.eventually(func(ctx context.Context) error {
		pod, err := s.kube.CoreV1().Pods(s.namespace).Get(ctx, gone.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && pod.UID != gone.UID {
			return nil
		}
		return errors.Join(err, fmt.Errorf("pod %s is still there", gone.Name))
	})
}

// kubectl runs kubectl in the namespace and returns what it wrote to stdout.
func (s *story) kubectl(args ...string) string {
	s.Helper()
	out, err := s.tryKubectl(s.Context(), args...)
	if err != nil {
		s.Fatal(err)
	}
	return out
}

func (s *story) tryKubectl(ctx context.Context, args ...string) (string, error) {
	// A plugin takes flags behind its name only.
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	out, _, err := plane.Kubectl(ctx, "", nil, slices.Insert(slices.Clone(args), end, "--namespace="+s.namespace)...)
	return out, err
}

// environment asks the runtime of the claimed sandbox for its variables, with the token that the
// claim has.
func (s *story) environment(ctx context.Context) (map[string]string, error) {
	access, err := s.SandboxClaims(s.namespace).RuntimeAccess(ctx, claimName, &v1alpha1.SandboxClaimRuntimeAccess{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if len(access.Status.Sandboxes) != 1 {
		return nil, fmt.Errorf("the claim has access to %d sandboxes", len(access.Status.Sandboxes))
	}
	sandbox := access.Status.Sandboxes[0]
	code, body, err := call(ctx, http.MethodGet, sandbox.URL+"/envs", sandbox.AccessToken, "")
	if err != nil || code != http.StatusOK {
		return nil, errors.Join(err, fmt.Errorf("the runtime answers %d: %s", code, body))
	}
	variables := map[string]string{}
	return variables, json.Unmarshal([]byte(body), &variables)
}

// expectVariable fails the test if the runtime of the claimed sandbox does not have its variable.
func (s *story) expectVariable() {
	s.Helper()
	variables, err := s.environment(s.Context())
	if err != nil || variables["VARIABLE"] != variable {
		s.Errorf("the runtime has the variables %v: %v", variables, err)
	}
}

// call asks an agent-runtime.
func call(ctx context.Context, method, url, token, body string) (code int, answer string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("X-Access-Token", token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}
