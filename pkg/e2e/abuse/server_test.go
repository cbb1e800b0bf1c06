// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"bytes"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/localpki"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

const mebibyte = 1 << 20

// server is a running "sandlot up", whose sandboxes start at once.
type server struct {
	*program.Server
	typed.AgentsV1alpha1Interface
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	s := program.Up(t, programs, t.TempDir(), append([]string{"--simulated-start-delay=10ms"}, args...)...)
	return &server{Server: s, AgentsV1alpha1Interface: s.Client.AgentsV1alpha1()}
}

// usage is what a server has used up.
type usage struct {
	// cpu is of the process since it started.
	cpu time.Duration
	// store is the size of the store's file, and heap that of what lives in memory; both
	// in bytes.
	store, heap int64
}

// usage measures what the server uses, after it has collected its garbage.
func (s *server) usage(t testing.TB) usage {
	t.Helper()
	s.get(t, "/debug/pprof/heap?gc=1")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(s.get(t, "/metrics")))
	if err != nil {
		t.Fatal(err)
	}
	return usage{
		cpu:   time.Duration(value(t, families, "process_cpu_seconds_total") * float64(time.Second)),
		store: int64(value(t, families, "apiserver_storage_size_bytes")),
		heap:  int64(value(t, families, "go_memstats_heap_alloc_bytes")),
	}
}

// value returns the value of a metric that has one series.
func value(t testing.TB, families map[string]*dto.MetricFamily, name string) float64 {
	t.Helper()
	series := families[name].GetMetric()
	if len(series) != 1 {
		t.Fatalf("%d series of %s", len(series), name)
	}
	return series[0].GetGauge().GetValue() + series[0].GetCounter().GetValue()
}

func (s *server) get(t testing.TB, path string) []byte {
	t.Helper()
	resp, err := s.HTTP.Get(s.Config.Host + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v", path, resp.Status, err)
	}
	return body
}

// since returns what was used after an earlier measurement, and logs it.
func (u usage) since(t testing.TB, before usage) usage {
	t.Helper()
	used := usage{cpu: u.cpu - before.cpu, store: u.store - before.store, heap: u.heap - before.heap}
	t.Logf("used %s of CPU, %.1f MiB in the store, %.1f MiB in memory", used.cpu, float64(used.store)/mebibyte, float64(used.heap)/mebibyte)
	return used
}

// atMost requires that no more was used.
func (u usage) atMost(t testing.TB, limit usage) {
	t.Helper()
	if u.cpu > limit.cpu {
		t.Errorf("it cost %s of CPU, more than %s", u.cpu, limit.cpu)
	}
	if u.store > limit.store {
		t.Errorf("the store grew by %.1f MiB, more than %.1f", float64(u.store)/mebibyte, float64(limit.store)/mebibyte)
	}
	if u.heap > limit.heap {
		t.Errorf("the memory grew by %.1f MiB, more than %.1f", float64(u.heap)/mebibyte, float64(limit.heap)/mebibyte)
	}
}

// count returns how many sandboxes a namespace has.
func (s *server) count(t testing.TB, namespace string) int {
	t.Helper()
	list, err := s.Sandboxes(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// refused requires that a request was refused as invalid, for a field.
func refused(t testing.TB, err error, field string) {
	t.Helper()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), field) {
		t.Errorf("got %.200v, want it to be refused as invalid, for %s", err, field)
	}
}

// makeSet creates a set in a namespace, and waits until it is full.
func (s *server) makeSet(t testing.TB, namespace string, set *v1alpha1.SandboxSet) {
	t.Helper()
	if _, err := s.SandboxSets(namespace).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, s, namespace, set.Name, *set.Spec.Replicas)
}

// as returns clients for another user, who may do everything as well.
func (s *server) as(t testing.TB, user string) typed.AgentsV1alpha1Interface {
	t.Helper()
	ca, err := localpki.OpenAuthority(filepath.Join(s.Dir, "pki"), "ca", "sandlot-ca", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue(localpki.Leaf{CommonName: user, Organization: []string{"system:masters"}, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(s.Config)
	config.CertData, config.KeyData = cert.Cert, cert.Key
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.AgentsV1alpha1()
}

const (
	// samples are the claims of which a median is taken.
	samples = 31
	// slowdown is how much longer claims of an innocent user may take.
	slowdown = 3
	// unnoticed is what does not count as slow, whatever it was before.
	unnoticed = 25 * time.Millisecond
)

// innocent is a user with a warm pool in a namespace, who does nothing wrong.
type innocent struct {
	server    *server
	namespace string
	// alone is how long a claim takes while there is no abuse, as a median.
	alone time.Duration
}

// innocent makes a user, and a pool, in a namespace of their own.
func (s *server) innocent(t testing.TB) *innocent {
	t.Helper()
	i := &innocent{server: s, namespace: "innocent"}
	s.makeSet(t, i.namespace, builders.Set("pool", 2*samples))
	i.median(t) // connections are made, caches are warm
	i.alone = i.median(t)
	return i
}

// median claims sandboxes one by one, and returns how long a claim takes.
func (i *innocent) median(t testing.TB) time.Duration {
	t.Helper()
	return expect.ClaimTimes(t, i.server, i.namespace, samples)[samples/2]
}

// undisturbed requires that the user hardly notices what goes on. A machine that is busy
// with other things gets more chances.
func (i *innocent) undisturbed(t testing.TB) {
	t.Helper()
	limit := max(slowdown*i.alone, unnoticed)
	var abused time.Duration
	for range 4 {
		if abused = i.median(t); abused <= limit {
			break
		}
	}
	t.Logf("an innocent claim takes %s alone and %s now", i.alone, abused)
	if abused > limit {
		t.Errorf("an innocent claim takes %s, more than %s", abused, limit)
	}
}
