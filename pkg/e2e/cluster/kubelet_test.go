// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// execKubelet answers exec instead of kwok, which runs no containers: it writes what it
// was asked for to stdout, copies stdin there, and lets commands end with the code that
// their last word says.
type execKubelet struct {
	port int32
	mu   sync.Mutex
	// asked are the paths and commands of the requests so far.
	asked []string
}

// playExec lets an execKubelet answer for all nodes until the test ends.
func playExec(t testing.TB) *execKubelet {
	t.Helper()
	k := &execKubelet{}
	server := httptest.NewTLSServer(k)
	t.Cleanup(server.Close)
	address, ok := server.Listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal("the kubelet has no port")
	}
	k.port = int32(address.Port)
	k.pointNodes(t.Context(), t, k.port)
	t.Cleanup(func() { k.pointNodes(context.Background(), t, 0) }) // that of the test has ended
	return k
}

// pointNodes makes kube-apiserver look for the kubelets at a port. 0 is none.
func (k *execKubelet) pointNodes(ctx context.Context, t testing.TB, port int32) {
	t.Helper()
	nodes := admin(t).kube.CoreV1().Nodes()
	list, err := nodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Appendf(nil, `{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, port)
	for _, node := range list.Items {
		if _, err := nodes.Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
}

// ServeHTTP serves /exec/NAMESPACE/POD/CONTAINER as kubelets do.
func (k *execKubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	command := r.URL.Query()["command"]
	if !strings.HasPrefix(r.URL.Path, "/exec/") || len(command) == 0 {
		http.NotFound(w, r)
		return
	}
	k.mu.Lock()
	k.asked = append(k.asked, r.URL.Path+" "+strings.Join(command, "|"))
	k.mu.Unlock()
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		return // it is answered
	}
	wanted := 1 // the stream of errors
	for _, name := range []string{"input", "output", "error"} {
		if r.URL.Query().Get(name) == "1" {
			wanted++
		}
	}
	streams := make(chan httpstream.Stream, wanted)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		select {
		case streams <- stream:
			return nil
		default:
			return errors.New("too many streams")
		}
	})
	if conn == nil {
		return // it is answered
	}
	defer conn.Close()
	byType := map[string]httpstream.Stream{}
	for range wanted {
		select {
		case stream := <-streams:
			byType[stream.Headers().Get(corev1.StreamType)] = stream
		case <-conn.CloseChan():
			return
		}
	}
	runCommand(byType, command)
}

// runCommand plays a command on its streams.
func runCommand(streams map[string]httpstream.Stream, command []string) {
	stdout := streams[corev1.StreamTypeStdout]
	fmt.Fprintf(stdout, "ran %q\n", command)
	if stdin := streams[corev1.StreamTypeStdin]; stdin != nil {
		_, _ = io.Copy(stdout, stdin) // the client finds out
	}
	status := metav1.Status{Status: metav1.StatusSuccess}
	if code, err := strconv.Atoi(command[len(command)-1]); err == nil && code != 0 {
		status = metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Message: "command terminated with non-zero exit code",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(code)}}}}
	}
	_ = json.NewEncoder(streams[corev1.StreamTypeError]).Encode(status) // the client finds out
	for _, stream := range streams {
		_ = stream.Close()
	}
}

// requests are the paths and commands of the requests so far.
func (k *execKubelet) requests() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string{}, k.asked...)
}
