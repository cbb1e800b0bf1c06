// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// held is sandbox a, which a claim holds.
func held(change func(*v1alpha1.Sandbox)) *v1alpha1.Sandbox {
	sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{UID: "u-a", ResourceVersion: "10", Annotations: map[string]string{v1alpha1.AnnotationOwner: "claim-uid"}}}
	sb.Status.Phase, sb.Status.PodInfo.PodUID = v1alpha1.SandboxRunning, "pod"
	if change != nil {
		sb.ResourceVersion = "11"
		change(sb)
	}
	return sb
}

// stream is an open request, seen from the client. read returns when it ends.
type stream struct {
	read func() error
	// echo sends something and waits for it to come back; nil if the stream goes one way.
	echo  func() error
	close func()
}

// streams are the kinds of requests that can last.
func (s *street) streams() map[string]func(*testing.T) stream {
	response := func(http2 bool, contentType string) func(*testing.T) stream {
		return func(t *testing.T) stream {
			protocols := new(http.Protocols)
			protocols.SetHTTP1(!http2)
			protocols.SetUnencryptedHTTP2(http2)
			transport := &http.Transport{Protocols: protocols}
			r := s.request("a", "GET", "/", nil)
			r.Header.Set("Content-Type", contentType)
			resp, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			return stream{
				read: func() error { _, err := io.ReadAll(resp.Body); return err },
				close: func() {
					_ = resp.Body.Close()
					transport.CloseIdleConnections()
				},
			}
		}
	}
	return map[string]func(*testing.T) stream{
		"response over HTTP/1.1": response(false, "text/plain"),
		"response over HTTP/2":   response(true, "text/plain"),
		"gRPC":                   response(true, "application/grpc"),
		"WebSocket": func(t *testing.T) stream {
			conn, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(s.url, "http")+"/ws", http.Header{"Uid": {"a"}})
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			echo := func() error {
				if err := conn.WriteMessage(websocket.TextMessage, []byte("x")); err != nil {
					return err
				}
				_, _, err := conn.ReadMessage()
				return err
			}
			if err := echo(); err != nil {
				t.Fatal(err)
			}
			return stream{
				read:  func() error { _, _, err := conn.ReadMessage(); return err },
				echo:  echo,
				close: func() { _ = conn.Close() },
			}
		},
	}
}

// withStreams is a street whose sandbox keeps requests open. ended gets a value for each that has ended in the
// sandbox.
func withStreams(t *testing.T, ip string) (s *street, connections *sandboxproxy.Connections, ended chan struct{}) {
	t.Helper()
	connections, ended = sandboxproxy.NewConnections(), make(chan struct{}, 100)
	s = newStreet(t, func(o *sandboxproxy.Options) { o.Connections = connections })
	s.state = sandboxproxy.StateOf(held(nil))
	s.box("a", ip, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/short" {
			return
		}
		defer func() { ended <- struct{}{} }()
		if websocket.IsWebSocketUpgrade(r) {
			conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
			for err == nil {
				var text []byte
				if _, text, err = conn.ReadMessage(); err == nil {
					err = conn.WriteMessage(websocket.TextMessage, text)
				}
			}
			return
		}
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.WriteString(w, "x")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	return s, connections, ended
}

// within runs something that has to return.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(expect.Patience):
		t.Fatalf("%s: it stays open", what)
	}
}

// TestStreamsEnd: an open request of any kind ends, for the client and in the sandbox, when the sandbox stops,
// goes to another claim or gets another pod, or when the port is closed.
func TestStreamsEnd(t *testing.T) {
	s, connections, ended := withStreams(t, "127.9.0.40")
	changed := func(change func(*v1alpha1.Sandbox)) func() {
		return func() { connections.SandboxChanged(held(change)) }
	}
	phase := func(phase v1alpha1.SandboxPhase) func() {
		return changed(func(sb *v1alpha1.Sandbox) { sb.Status.Phase = phase })
	}
	for name, change := range map[string]func(){
		"is to be paused":       changed(func(sb *v1alpha1.Sandbox) { sb.Spec.Paused = true }),
		"is paused":             phase(v1alpha1.SandboxPaused),
		"is starting":           phase(v1alpha1.SandboxPending),
		"has failed":            phase(v1alpha1.SandboxFailed),
		"has succeeded":         phase(v1alpha1.SandboxSucceeded),
		"is terminating":        phase(v1alpha1.SandboxTerminating),
		"is recycled":           phase(v1alpha1.SandboxRecycling),
		"is being deleted":      changed(func(sb *v1alpha1.Sandbox) { sb.DeletionTimestamp = new(metav1.Now()) }),
		"is released":           changed(func(sb *v1alpha1.Sandbox) { delete(sb.Annotations, v1alpha1.AnnotationOwner) }),
		"is claimed by another": changed(func(sb *v1alpha1.Sandbox) { sb.Annotations[v1alpha1.AnnotationOwner] = "other" }),
		"has another pod":       changed(func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodUID = "other" }),
		"has lost its pod":      changed(func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodUID = "" }),
		"has a closed port":     changed(s.closePort(0)),
		"is gone":               func() { connections.SandboxDeleted(held(func(*v1alpha1.Sandbox) {})) },
		"is in no list":         func() { connections.SandboxesListed(nil, 11) },
	} {
		for kind, open := range s.streams() {
			t.Run(name+"/"+kind, func(t *testing.T) {
				stream := open(t)
				defer stream.close()
				change()
				within(t, "for the client", func() {
					if err := stream.read(); err == nil {
						t.Error("the response looks whole")
					}
				})
				within(t, "in the sandbox", func() { <-ended })
			})
		}
	}
}

// closePort closes the port that is so many after that of the sandbox.
func (s *street) closePort(after int) func(*v1alpha1.Sandbox) {
	return func(sb *v1alpha1.Sandbox) {
		sb.Annotations[v1alpha1.AnnotationRuntimeURL] = "http://10.0.0.1:" + strconv.Itoa(s.port+after)
		sb.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxConditionRuntimeInitialized, Status: metav1.ConditionFalse}}
	}
}

// TestStreamsGoOn: other changes end no request, nor do those of other sandboxes, and those before the
// address was read.
func TestStreamsGoOn(t *testing.T) {
	s, connections, _ := withStreams(t, "127.9.0.41")
	stream := s.streams()["WebSocket"](t)
	defer stream.close()
	for name, change := range map[string]func(*v1alpha1.Sandbox){
		"nothing changes": func(*v1alpha1.Sandbox) {},
		"it is not ready": func(sb *v1alpha1.Sandbox) {
			sb.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionFalse}}
		},
		"another port is closed":     s.closePort(1),
		"it was paused before":       func(sb *v1alpha1.Sandbox) { sb.ResourceVersion, sb.Spec.Paused = "9", true },
		"another sandbox is paused":  func(sb *v1alpha1.Sandbox) { sb.UID, sb.Spec.Paused = "u-b", true },
		"its annotations are others": func(sb *v1alpha1.Sandbox) { sb.Annotations["a"] = "b" },
	} {
		connections.SandboxChanged(held(change))
		connections.SandboxesListed([]*v1alpha1.Sandbox{held(nil)}, 12)
		connections.SandboxesListed(nil, 9) // of before
		if err := stream.echo(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// TestKeptConnectionsEnd: so the address is read again, and nothing is sent to the former pod.
func TestKeptConnectionsEnd(t *testing.T) {
	s, connections, _ := withStreams(t, "127.9.0.42")
	for range 2 {
		if resp, text := s.do(http.DefaultClient, s.request("a", "GET", "/short", nil)); resp.StatusCode != http.StatusOK || s.asked != 1 {
			t.Fatalf("%d %s after %d questions", resp.StatusCode, text, s.asked)
		}
	}
	connections.SandboxChanged(held(func(sb *v1alpha1.Sandbox) { sb.Spec.Paused = true }))
	s.move("a", "")
	if resp, text := s.do(http.DefaultClient, s.request("a", "GET", "/short", nil)); resp.StatusCode != http.StatusGone {
		t.Errorf("a paused sandbox is reached: %d %s", resp.StatusCode, text)
	}
}

// TestChangeDuringDial: a change that is reported after the address was read, and before there is a
// connection, is not missed.
func TestChangeDuringDial(t *testing.T) {
	connections, reached := sandboxproxy.NewConnections(), false
	s := newStreet(t, func(o *sandboxproxy.Options) {
		resolve := o.Resolve
		o.Connections = connections
		o.Resolve = func(ctx context.Context, target sandboxproxy.Target) (sandboxproxy.Address, error) {
			address, err := resolve(ctx, target)
			connections.SandboxChanged(held(func(sb *v1alpha1.Sandbox) { sb.Spec.Paused = true }))
			return address, err
		}
	})
	s.state = sandboxproxy.StateOf(held(nil))
	s.box("a", "127.9.0.43", func(http.ResponseWriter, *http.Request) { reached = true })
	if resp, text := s.do(http.DefaultClient, s.request("a", "POST", "/", nil)); resp.StatusCode != http.StatusGone || reached {
		t.Errorf("%d %s, and the request has reached the sandbox: %t", resp.StatusCode, text, reached)
	}
}

// TestStoppedRequest: a request without a response yet says that its sandbox was stopped, so that nothing
// takes it for one that the sandbox has not processed.
func TestStoppedRequest(t *testing.T) {
	connections, processing := sandboxproxy.NewConnections(), make(chan struct{})
	failed := make(chan error, 1)
	s := newStreet(t, func(o *sandboxproxy.Options) {
		o.Connections = connections
		o.Error = func(w http.ResponseWriter, _ *http.Request, err error) {
			failed <- err
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	s.state = sandboxproxy.StateOf(held(nil))
	s.box("a", "127.9.0.44", func(_ http.ResponseWriter, r *http.Request) {
		processing <- struct{}{}
		<-r.Context().Done()
	})
	for _, contentType := range []string{"text/plain", "application/grpc"} {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: protocols}
		defer transport.CloseIdleConnections()
		go func() {
			<-processing
			connections.SandboxDeleted(held(func(*v1alpha1.Sandbox) {}))
		}()
		r := s.request("a", "POST", "/", nil)
		r.Header.Set("Content-Type", contentType)
		s.do(&http.Client{Transport: transport}, r)
		if err := <-failed; !strings.Contains(fmt.Sprint(err), sandboxproxy.ErrStopped.Error()) {
			t.Errorf("%s: %v", contentType, err)
		}
	}
}
