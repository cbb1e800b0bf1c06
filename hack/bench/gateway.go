// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

const (
	gatewayProgram = "sandlot-gateway"
	// e2bTimeout is the timeout of sandboxes in seconds: longer than a case.
	e2bTimeout = 24 * 60 * 60
	// offered is how many requests a second 64 clients make together where they are paced.
	offered = 2000
)

// gateway is a sandlot-gateway beside a control plane, with the rights of the install.
type gateway struct {
	*cluster
	process *program.Process
	// url is where it serves.
	url  string
	http *http.Client
}

// cpu is the processor time of the gateway alone.
func (g *gateway) cpu(context.Context) float64 { return processCPU(g.process) }

// theGateway starts a gateway for the first case that needs one. It stays until the last case
// has ended.
func (t *stage) theGateway() *gateway {
	if t.gateway != nil {
		return t.gateway
	}
	c := t.cluster()
	// The install has its rights, and the namespace of the keys.
	kubeconfig := got(c.plane.ServiceAccountKubeconfig(t.ctx, controlplane.Namespace, gatewayProgram))
	listener := got(new(net.ListenConfig).Listen(t.ctx, "tcp", "127.0.0.1:0"))
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	check(listener.Close())
	transport := &http.Transport{MaxIdleConnsPerHost: manyClients}
	t.all.Cleanup(transport.CloseIdleConnections)
	g := &gateway{cluster: c, url: "http://127.0.0.1:" + port, http: &http.Client{Transport: transport, Timeout: requestTimeout}}
	health := net.JoinHostPort("127.0.0.2", port)
	g.process = t.all.program(gatewayProgram,
		"--kubeconfig="+kubeconfig, "--bind-address=127.0.0.1", "--secure-port=0", "--insecure-port="+port,
		"--metrics-bind-address=0", "--health-probe-bind-address="+health, "--keys-namespace="+apikeys.DefaultNamespace,
		// Simulated sandboxes have addresses of this machine. The limit of a key is not what
		// is measured.
		"--allow-loopback", "--key-rate=1e6", "--key-burst=1000000")
	await(t.ctx, "the gateway is ready", func(ctx context.Context) bool {
		if !g.process.Alive() {
			t.Fatal("the gateway has ended")
		}
		answer, err := g.http.Do(got(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health+"/readyz", nil)))
		if err != nil {
			return false
		}
		_ = answer.Body.Close() // the status is all
		return answer.StatusCode == http.StatusOK
	})
	t.gateway = g
	return g
}

// team is a namespace whose users come by the E2B API.
type team struct {
	*gateway
	pool pool
	// key is an API key, and keyID its id.
	key, keyID string
	// users are clients for the user as whom the gateway acts.
	users []versioned.Interface

	mu sync.Mutex
	// made are the ids since sandboxes were given back last.
	made            map[string]bool
	creates, failed int
}

// team makes a team with a pool.
func (t *stage) team(p pool) *team {
	g := t.theGateway()
	g.makePool(t.ctx, p)
	// What the install has for teams.
	folder := got(filepath.Abs(t.TempDir()))
	component := got(filepath.Rel(folder, filepath.Join(got(program.Root()), "artifacts", "deploy", "components", "e2b-team")))
	text := fmt.Sprintf("namespace: %s\ncomponents: [%q]\n", p.namespace, component)
	check(os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o644))
	_, _, err := g.plane.Kubectl(t.ctx, "", nil, "apply", "--kustomize", folder)
	check(err)

	record, key, err := apikeys.New(apikeys.NewSecrets(g.kube.CoreV1(), apikeys.DefaultNamespace, clock.RealClock{})).
		Issue(t.ctx, apikeys.Request{Team: p.namespace, Name: "bench"})
	check(err)
	kubeconfig := got(g.plane.ServiceAccountKubeconfig(t.ctx, p.namespace, v1alpha1.E2BServiceAccount))
	made := &team{gateway: g, pool: p, key: key, keyID: record.ID, users: connect(kubeconfig, t.connections), made: map[string]bool{}}
	await(t.ctx, "kube-apiserver knows the roles of the team", func(ctx context.Context) bool {
		_, err := made.users[0].AgentsV1alpha1().SandboxSets(p.namespace).List(ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			check(err)
		}
		return err == nil
	})
	return made
}

// create makes a sandbox through the gateway, and returns its id.
func (t *team) create(ctx context.Context) string {
	body := got(json.Marshal(map[string]any{"templateID": t.pool.name(), "timeout": e2bTimeout}))
	request := got(http.NewRequestWithContext(ctx, http.MethodPost, t.url+"/sandboxes", bytes.NewReader(body)))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Api-Key", t.key)
	status, text := exchange(t.http, request)
	var made struct {
		SandboxID string `json:"sandboxID"`
	}
	if status == http.StatusCreated {
		check(json.Unmarshal(text, &made))
	}
	if !strings.HasPrefix(made.SandboxID, t.pool.namespace+"--") {
		check(fmt.Errorf("a create through the gateway was answered with %d %.300s", status, text))
	}
	return made.SandboxID
}

// exchange sends a request and reads the answer.
func exchange(client *http.Client, request *http.Request) (status int, body []byte) {
	answer := got(client.Do(request))
	body, err := io.ReadAll(answer.Body)
	check(errors.Join(err, answer.Body.Close()))
	return answer.StatusCode, body
}

// runRoute compares requests of 64 clients with keep-alive to a port of a sandbox: directly,
// through a plain httputil.ReverseProxy, and through the gateway. The
// sandbox, the plain proxy and the gateway are a process each, HTTP without TLS, on the same
// processors as the clients, which are this process.
//
// 64 clients that send the next request as soon as one is answered keep both processors
// busy. The p50 is then the length of the queue by the rate, and says the same as the rate.
// So rates are compared in that way, and times where 64 clients send 2,000 requests a
// second together, whichever server answers.
func runRoute(t *stage, r *result) {
	e2b := t.team(pool{namespace: "bench-e2b-route", size: 1})
	id, address := e2b.routed(t.ctx)
	_, sandbox := t.stand(standSandbox, address)
	plain, proxy := t.stand(standProxy, "http://"+sandbox)
	_, port, _ := net.SplitHostPort(sandbox)
	transport := &http.Transport{MaxIdleConnsPerHost: manyClients, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: requestTimeout}
	arms := func(count int) []arm {
		return []arm{
			{name: "direct", count: count, do: ask(client, "http://"+sandbox, nil)},
			{name: "ReverseProxy", count: count, do: ask(client, "http://"+proxy, nil), cpu: func(context.Context) float64 { return processCPU(plain) }},
			{name: "gateway", count: count, do: ask(client, e2b.url, http.Header{"E2b-Sandbox-Id": {id}, "E2b-Sandbox-Port": {port}}), cpu: e2b.cpu},
		}
	}
	slow := arms(t.count * 2)
	for i := range slow {
		p := newPace(manyClients, offered)
		slow[i].before, slow[i].ready = p.begin, p.wait
	}
	paced := t.compare(r.Case+" paced", r.Clients, t.rounds, slow...)
	r.routes(paced, t.compare(r.Case, r.Clients, t.rounds, arms(t.count*5)...))
}

// routes reports of three arms each: direct, through the plain proxy, through the gateway.
func (r *result) routes(paced, closed []series) {
	// Paced requests come at a rate: what one takes is not the time that it waits for others,
	// as long as routed_paced_per_s is as much.
	r.set("offered_per_s", offered)
	r.set("routed_paced_per_s", paced[2].rate())
	r.set("direct_p50_ms", paced[0].p50())
	r.set("proxy_p50_ms", paced[1].p50())
	r.set("routed_p50_ms", paced[2].p50())
	r.set("routed_p99_ms", paced[2].p99())
	r.set("proxy_added_ms", difference(paced[1], paced[0], sample.p50))
	r.set("routed_added_ms", difference(paced[2], paced[0], sample.p50))
	// Closed are those of clients that send the next request when one is answered.
	for i, name := range strings.Fields("closed_direct closed_proxy closed_routed") {
		r.set(name+"_per_s", closed[i].rate())
		r.set(name+"_p50_ms", closed[i].p50())
	}
	r.set("routed_rate_ratio", ratio(closed[2], closed[1], sample.rate))
	r.set("proxy_cpu_ms", closed[1].cpuEach())
	r.set("routed_cpu_ms", closed[2].cpuEach())
}

// ask gets a URL, which the sandbox has to answer.
func ask(client *http.Client, url string, header http.Header) func(context.Context, int) {
	return func(ctx context.Context, _ int) {
		request := got(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))
		maps.Copy(request.Header, header)
		if status, body := exchange(client, request); status != http.StatusOK || string(body) != standAnswer {
			check(fmt.Errorf("GET %s was answered with %d %.200q, not by the sandbox", url, status, body))
		}
	}
}

// routed makes a sandbox through the gateway, and returns its id and its address.
func (t *team) routed(ctx context.Context) (id, address string) {
	id = t.create(ctx)
	list := t.sandboxes(ctx, t.pool, v1alpha1.LabelSandboxID+"="+id)
	if len(list) != 1 {
		check(fmt.Errorf("%d sandboxes have the id %s", len(list), id))
	}
	address = list[0].Status.PodInfo.PodIP
	if ip := net.ParseIP(address); ip == nil || !ip.IsLoopback() {
		check(fmt.Errorf("the address %q of sandbox %s is not of this machine", address, id))
	}
	return id, address
}

// creates compares creates through the gateway with claims that client-go makes through
// kube-apiserver: the same claims, by the same user, on the same pool. A round of either
// begins when the pool is full and nothing else goes on, and takes less than half of the
// pool; then the sandboxes are given back.
func creates(count func(*settings) int) func(*stage, *result) {
	return func(t *stage, r *result) {
		n := count(t.settings)
		e2b := t.team(pool{namespace: fmt.Sprintf("bench-e2b-c%d", r.Clients), size: n * 5 / 2})
		arms := []arm{
			e2b.arm("gateway", n, func(ctx context.Context, _ int) string { return e2b.create(ctx) }),
			e2b.arm("same claim", n, func(ctx context.Context, i int) string {
				claim := e2b.claim(time.Now())
				return idOf(got(e2b.user(i).AgentsV1alpha1().SandboxClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})))
			}),
			e2b.arm("same claim and token", n, e2b.claimWithToken),
		}
		arms[0].cpu = e2b.cpu
		all := t.compare(r.Case, r.Clients, t.rounds, arms...)
		r.set("pool", float64(e2b.pool.size))
		// A create fails if its sandbox is not in the store under its id, or if the store has
		// one that no client knows of.
		r.set("creates", float64(e2b.creates))
		r.set("creates_failed", float64(e2b.failed))
		r.speed("create", all[0])
		r.speed("same_claim", all[1])
		r.set("create_p50_ratio", ratio(all[0], all[1], sample.p50))
		r.set("create_rate_ratio", ratio(all[0], all[1], sample.rate))
		// The same claims with the access token of the sandbox in the answer, as the gateway
		// makes them: by the same claims, this is what a create costs at least.
		r.set("claim_and_token_p50_ms", all[2].p50())
		r.set("claim_and_token_p50_ratio", ratio(all[2], all[1], sample.p50))
		r.set("create_gateway_cpu_ms", all[0].cpuEach())
	}
}

func (t *team) arm(name string, count int, create func(ctx context.Context, client int) (id string)) arm {
	return arm{
		name: name, count: count, profiled: t.server,
		before: t.settled(t.pool), after: t.giveBack,
		reset: func() { t.creates = 0 },
		do:    func(ctx context.Context, client int) { t.note(create(ctx, client)) },
	}
}

func (t *team) note(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.creates++
	if t.made[id] {
		logf("the id %s was given twice", id)
		t.failed++
	}
	t.made[id] = true
}

// giveBack compares the ids with the sandboxes in the store, and deletes these with their
// claims.
func (t *team) giveBack(ctx context.Context) {
	var stored []string
	sandboxes := t.sandboxes(ctx, t.pool, v1alpha1.LabelSandboxID)
	for i := range sandboxes {
		if id, ok := v1alpha1.IsE2B(&sandboxes[i]); ok {
			stored = append(stored, id)
		}
	}
	if wrong := mismatches(t.made, stored); len(wrong) > 0 {
		logf("sandboxes were made or stored, not both: %.500s", strings.Join(wrong, " "))
		t.failed += len(wrong)
	}
	clear(t.made)
	agents := t.clients[0].AgentsV1alpha1()
	check(agents.SandboxClaims(t.pool.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	check(agents.Sandboxes(t.pool.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: v1alpha1.LabelSandboxID}))
}

// mismatches are ids that are in one of two sets alone, or in the second twice.
func mismatches(made map[string]bool, stored []string) (wrong []string) {
	left := maps.Clone(made)
	for _, id := range stored {
		if !left[id] {
			wrong = append(wrong, id)
		}
		delete(left, id)
	}
	for id := range left {
		wrong = append(wrong, id)
	}
	return wrong
}

func (t *team) user(i int) versioned.Interface { return t.users[i%len(t.users)] }

// claimWithToken makes the same claim, and fails if the answer lacks the access token of the
// sandbox.
func (t *team) claimWithToken(ctx context.Context, i int) string {
	claim := t.claim(time.Now())
	options := client.Options{Key: claim.Annotations[client.AnnotationKey], AccessTokens: map[string]string{}}
	claim = got(client.Create(ctx, t.user(i).AgentsV1alpha1(), claim, options))
	id := idOf(claim)
	if options.AccessTokens[claim.Status.Sandboxes[0].Name] == "" {
		check(fmt.Errorf("the answer to claim %s has no access token", claim.Name))
	}
	return id
}

// idOf is the id of the sandbox that a claim must have.
func idOf(claim *v1alpha1.SandboxClaim) string {
	if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted || len(claim.Status.Sandboxes) != 1 {
		check(fmt.Errorf("claim %s is %q with %d sandboxes", claim.Name, claim.Status.Phase, len(claim.Status.Sandboxes)))
	}
	return v1alpha1.E2BSandboxID(claim.Namespace, claim.Name)
}

// claim is what the gateway makes of the body of create.
func (t *team) claim(now time.Time) *v1alpha1.SandboxClaim {
	body := &mapping.CreateRequest{TemplateID: t.pool.name(), Timeout: new(int64(e2bTimeout))}
	claim := got(mapping.NewCreatePlan(body, t.keyID, mapping.Limits{MaxTimeout: mapping.DefaultMaxTimeout}, now)).Claim
	claim.Namespace = t.pool.namespace
	random := make([]byte, 10)
	_, _ = rand.Read(random) // never fails
	claim.Name = "e" + strings.ToLower(base32.StdEncoding.EncodeToString(random))[:13]
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, client.AnnotationKey, rand.Text())
	return claim
}

// measureRoutes measures the memory of the route table of the gateway: what stays reachable when
// it has watched n sandboxes, with all that its watch keeps. The table is in this process, and
// watches a server that makes the sandboxes up as it sends them, so that nothing else is
// measured.
func measureRoutes(t *stage, r *result, n int) {
	api := httptest.NewServer(sandboxStream(n))
	defer api.Close()
	clients := newClients(&rest.Config{Host: api.URL}, 1)
	var table *routes.Table
	watching, stop := context.WithCancel(t.ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stop()
	began := time.Now()
	used := heapGrown(clients, func() {
		table = routes.New(clients[0], routes.Options{})
		watch.Go(func() { table.Run(watching) })
		await(t.ctx, "the table has learned of all sandboxes", func(context.Context) bool { return table.HasSynced() })
		r.set("routes_learned_s", time.Since(began).Seconds())
	})
	if table.Len() != n {
		check(fmt.Errorf("the table knows %d of %d sandboxes", table.Len(), n))
	}
	last := routedSandbox(n - 1)
	if route, ok := table.Peek(last.Labels[v1alpha1.LabelSandboxID]); !ok || route.UID != last.UID || route.State != routes.Running {
		check(fmt.Errorf("the last sandbox has the route %+v", route))
	}
	r.set("routes", float64(n))
	r.set("routes_mib", used/(1<<20))
	r.set("bytes_per_route", used/float64(n))
}

// sandboxStream answers a watch with n sandboxes and then says that these are all. What is
// not a watch from the beginning it does not know.
func sandboxStream(n int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if !strings.HasSuffix(r.URL.Path, "/sandboxes") || query.Get("watch") == "" || query.Get("sendInitialEvents") != "true" {
			http.Error(w, "only a watch with sendInitialEvents is served", http.StatusNotImplemented)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		events := json.NewEncoder(w)
		var err error
		for i := 0; i < n && err == nil; i++ {
			err = events.Encode(eventOf(watch.Added, routedSandbox(i)))
		}
		if err == nil {
			end := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
				ResourceVersion: strconv.Itoa(n + 1), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
			}}
			err = events.Encode(eventOf(watch.Bookmark, end))
		}
		if err == nil {
			_ = http.NewResponseController(w).Flush() // it fails if the reader is gone
			<-r.Context().Done()
		}
	})
}

type sandboxEvent struct {
	Type   watch.EventType   `json:"type"`
	Object *v1alpha1.Sandbox `json:"object"`
}

func eventOf(kind watch.EventType, sandbox *v1alpha1.Sandbox) sandboxEvent {
	sandbox.APIVersion, sandbox.Kind = v1alpha1.SchemeGroupVersion.String(), "Sandbox"
	return sandboxEvent{kind, sandbox}
}

// routedSandbox is one of the E2B API, with names as long as they may be.
func routedSandbox(i int) *v1alpha1.Sandbox {
	namespace := fmt.Sprintf("a-team-with-a-name-of-forty-letters-%04d", i%100)
	claim := fmt.Sprintf("e%013d", i)
	sandbox := indexedSandbox(i)
	sandbox.Namespace, sandbox.Name = namespace, fmt.Sprintf("a-pool-of-python-interpreters-%08d", i)
	sandbox.OwnerReferences = nil // it has left its pool
	sandbox.UID = types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i))
	sandbox.Labels[v1alpha1.LabelClaimName] = claim
	sandbox.Labels[v1alpha1.LabelSandboxID] = v1alpha1.E2BSandboxID(namespace, claim)
	sandbox.Annotations = map[string]string{
		v1alpha1.AnnotationClaimedBy:      v1alpha1.E2BUser(namespace),
		v1alpha1.AnnotationClaimTimestamp: "2026-11-22T10:00:00Z",
		v1alpha1.AnnotationE2BTimeout:     "300",
		v1alpha1.AnnotationE2BTemplateID:  "a-pool-of-python-interpreters",
	}
	return sandbox
}
