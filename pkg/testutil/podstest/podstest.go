// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podstest is for tests only: an HTTP server that answers as kube-apiserver does to
// reads of single Pods, and to nothing else. Where a test needs more of a cluster, it starts one
// (pkg/testutil/controlplane).
package podstest

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Server serves Pods. It is safe for concurrent use.
type Server struct {
	// Config is for clients of the server, without a limit on their rate.
	Config *rest.Config

	mu    sync.Mutex
	pods  map[key]*corev1.Pod
	down  bool
	deny  bool
	reads int
	read  func()
}

type key struct{ namespace, name string }

// Start returns a server without Pods, which stops when the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{pods: map[key]*corev1.Pod{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods/{name}", s.get)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.Config = &rest.Config{Host: server.URL, QPS: -1}
	return s
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.reads++
	read, down, deny, name := s.read, s.down, s.deny, r.PathValue("name")
	pod := s.pods[key{r.PathValue("namespace"), name}]
	s.mu.Unlock()
	if read != nil {
		read()
	}
	var answer any = pod
	code := http.StatusOK
	if failure := failureOf(pod, name, down, deny); failure != nil {
		code, answer = int(failure.ErrStatus.Code), failure.ErrStatus
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer) // a client that has gone needs no answer
}

// failureOf returns why a Pod is not answered with; nil if it is.
func failureOf(pod *corev1.Pod, name string, down, deny bool) *apierrors.StatusError {
	switch {
	case down:
		return apierrors.NewInternalError(http.ErrServerClosed)
	case deny:
		return apierrors.NewForbidden(corev1.Resource("pods"), name, errors.New("no right"))
	case pod == nil:
		return apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return nil
}

// Client returns a client of the server.
func (s *Server) Client(t testing.TB) corev1client.CoreV1Interface {
	t.Helper()
	client, err := corev1client.NewForConfig(s.Config)
	if err != nil {
		t.Fatalf("making a client: %v", err)
	}
	return client
}

// Set stores a Pod.
func (s *Server) Set(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[key{pod.Namespace, pod.Name}] = pod.DeepCopy()
}

// Delete deletes a Pod.
func (s *Server) Delete(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, key{namespace, name})
}

// SetDown says whether each read fails.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// SetForbidden says whether each read is forbidden.
func (s *Server) SetForbidden(deny bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deny = deny
}

// OnRead calls a function on each read, before the answer.
func (s *Server) OnRead(call func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = call
}

// Reads is how many reads there were.
func (s *Server) Reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// PodOf returns the Pod that the status of a sandbox describes.
func PodOf(sb *v1alpha1.Sandbox) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: sb.Namespace, Name: sb.Name, UID: sb.Status.PodInfo.PodUID}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIP = sb.Status.PodInfo.PodIP
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	return pod
}
