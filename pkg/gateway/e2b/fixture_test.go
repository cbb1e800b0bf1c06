// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	versioned "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/controllers"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/gateway/identity"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/manager"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// world is an API server with its controllers, simulated sandboxes, and the E2B API over it.
type world struct {
	*testing.T
	server   *testutil.Server
	keys     *apikeys.Keys
	url      string
	api      *e2b.API
	clients  func(team string) (versioned.Interface, error)
	document *api
	// lists is how many lists of sandboxes the API has asked for.
	lists *atomic.Int64
	// read, if set, is called when some of an answer of the API server was read. Its error is that
	// of the read. closed, if set, is called when nothing more of an answer is read.
	read   *atomic.Pointer[func(r *http.Request, bytes int) error]
	closed *atomic.Pointer[func(r *http.Request)]
	// before, if set, is called before each request of the API to the cluster. Its error is
	// the answer.
	before *atomic.Pointer[func(*http.Request) error]
	// after, if set, is called after each request of the API to the cluster. With an error, the response
	// is lost.
	after *atomic.Pointer[func(*http.Request) error]
	// stop stops the controllers.
	stop func()
}

func newWorld(t *testing.T, change ...func(*e2b.Options)) *world {
	t.Helper()
	server := testutil.Start(t)
	mgr, err := manager.New(server.Config, manager.Options{Options: controllers.Options{Simulate: true, SimulatedStartDelay: 10 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})
	t.Cleanup(stop)
	kept, err := apikeys.OpenFile(t.TempDir(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, server: server, keys: apikeys.New(kept), document: readDocument(t), lists: &atomic.Int64{}, before: &atomic.Pointer[func(*http.Request) error]{}, after: &atomic.Pointer[func(*http.Request) error]{}, read: &atomic.Pointer[func(*http.Request, int) error]{}, closed: &atomic.Pointer[func(*http.Request)]{}, stop: stop}
	config := rest.CopyConfig(server.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/sandboxes") {
				w.lists.Add(1)
			}
			if before := w.before.Load(); before != nil {
				if err := (*before)(r); err != nil {
					return nil, err
				}
			}
			resp, err := next.RoundTrip(r)
			if after := w.after.Load(); after != nil && err == nil {
				if err := (*after)(r); err != nil {
					_ = resp.Body.Close()
					return nil, err
				}
			}
			if err == nil {
				resp.Body = &watchedBody{ReadCloser: resp.Body, world: w, request: r}
			}
			return resp, err
		})
	})
	options := e2b.Options{
		Keys: w.keys, Clients: identity.New(config, user.SystemPrivilegedGroup).For,
		Allow:  func(apikeys.Caller) (bool, time.Duration) { return true, 0 },
		Limits: mapping.Limits{MaxTimeout: 3600}, EnvdVersion: "0.4.0", Domain: "box.example", CanCreateKeys: true,
		MaxAPIRequests: 100, Clock: clock.RealClock{},
	}
	for _, c := range change {
		c(&options)
	}
	w.api, w.clients = e2b.New(options), options.Clients
	front := httptest.NewServer(w.api)
	t.Cleanup(front.Close)
	w.url = front.URL
	return w
}

// roundTripper is a function that is one.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// watchedBody is an answer of the API server.
type watchedBody struct {
	io.ReadCloser
	world   *world
	request *http.Request
	// bytes is how many were read.
	bytes int
}

// Read implements io.Reader.
func (b *watchedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.bytes += n
	if read := b.world.read.Load(); read != nil {
		if failed := (*read)(b.request, b.bytes); failed != nil {
			return 0, failed
		}
	}
	return n, err
}

// Close implements io.Closer.
func (b *watchedBody) Close() error {
	if closed := b.world.closed.Load(); closed != nil {
		(*closed)(b.request)
	}
	return b.ReadCloser.Close()
}

// key makes a key of a team.
func (w *world) key(team string) string {
	w.Helper()
	_, raw, err := w.keys.Issue(w.Context(), apikeys.Request{Team: team, Name: "test"})
	if err != nil {
		w.Fatal(err)
	}
	return raw
}

// pool makes a SandboxSet and waits until it is full.
func (w *world) pool(namespace, name string, replicas int32) {
	w.Helper()
	set := builders.Set(name, replicas)
	set.Namespace, set.Spec.Template = namespace, builders.PodTemplateOf("image")
	sets := w.server.Client.AgentsV1alpha1().SandboxSets(namespace)
	if _, err := sets.Create(w.Context(), set, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.filled(namespace, name, replicas)
}

// filled waits until a SandboxSet is full.
func (w *world) filled(namespace, name string, replicas int32) {
	w.Helper()
	sets := w.server.Client.AgentsV1alpha1().SandboxSets(namespace)
	expect.Eventually(w.Context(), w, func(ctx context.Context) error {
		set, err := sets.Get(ctx, name, metav1.GetOptions{})
		if err == nil && set.Status.AvailableReplicas < replicas {
			err = fmt.Errorf("%d of %d are available", set.Status.AvailableReplicas, replicas)
		}
		return err
	})
}

// answer is what a request was answered.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// into reads the body.
func (a *answer) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
}

// ask sends a request and holds the answer to the document, where route, a path of it, is
// not empty. headers are pairs.
func (w *world) ask(key, method, path, route, body string, headers ...string) *answer {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	if key != "" {
		r.Header.Set("X-API-Key", key)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Fatal(err)
	}
	a := &answer{resp.StatusCode, resp.Header, bytes.TrimSpace(text)}
	if route != "" {
		if err := w.document.check(method, route, a.code, a.body); err != nil {
			w.Error(err)
		}
	}
	if a.code >= 400 {
		var e e2b.Error
		a.into(w, &e)
		if e.Code != a.code || e.Message == "" {
			w.Errorf("%s %s: %d has the body %s", method, path, a.code, a.body)
		}
	}
	return a
}

// want does so and wants a code.
func (w *world) want(code int, key, method, path, route, body string, headers ...string) *answer {
	w.Helper()
	a := w.ask(key, method, path, route, body, headers...)
	if a.code != code {
		w.Fatalf("%s %s %s: %d, want %d: %s", method, path, body, a.code, code, a.body)
	}
	return a
}

// create makes a sandbox and returns its id.
func (w *world) create(key, body string) string {
	w.Helper()
	var made mapping.SandboxResponse
	w.want(http.StatusCreated, key, "POST", "/sandboxes", "/sandboxes", body).into(w, &made)
	return made.SandboxID
}

// info describes a sandbox.
func (w *world) info(key, id string) mapping.Info {
	w.Helper()
	var info mapping.Info
	w.want(http.StatusOK, key, "GET", "/sandboxes/"+id, "/sandboxes/{id}", "").into(w, &info)
	return info
}

// sandbox is the Sandbox of an id.
func (w *world) sandbox(id string) *v1alpha1.Sandbox {
	w.Helper()
	namespace, claim, _ := v1alpha1.SplitE2BSandboxID(id)
	list, err := w.server.Client.AgentsV1alpha1().Sandboxes(namespace).List(w.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelClaimName + "=" + claim})
	if err != nil || len(list.Items) != 1 {
		w.Fatalf("sandbox %s: %v, %d", id, err, len(list.Items))
	}
	return &list.Items[0]
}
