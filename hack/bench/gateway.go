// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/gateway/keys"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
)

const (
	gatewayProgram = "sandlot-gateway"
	// e2bTimeout is the timeout of sandboxes in seconds: longer than a case.
	e2bTimeout = 24 * 60 * 60
)

// gateway is a sandlot-gateway beside a control plane, with the rights of the install.
type gateway struct {
	*process
	*cluster
	bench *bench
	// url is where it serves.
	url  string
	http *http.Client
}

// cpu is the processor time of the gateway alone.
func (g *gateway) cpu(ctx context.Context) (time.Duration, error) { return g.process.cpu(ctx) }

func (g *gateway) close() error {
	g.http.CloseIdleConnections()
	return g.process.close()
}

// gateways starts a gateway for the first case that needs one.
type gateways struct {
	bench   *bench
	started *gateway
}

func (g *gateways) run(of func(context.Context, *gateway) (*result, error)) func(context.Context, *cluster) (*result, error) {
	return func(ctx context.Context, c *cluster) (r *result, err error) {
		if g.started == nil {
			if g.started, err = startGateway(ctx, g.bench, c); err != nil {
				return nil, err
			}
		}
		return of(ctx, g.started)
	}
}

func (g *gateways) close() error {
	if g.started == nil {
		return nil
	}
	return g.started.close()
}

func startGateway(ctx context.Context, b *bench, c *cluster) (*gateway, error) {
	// The install has its rights, and the namespace of the keys.
	kubeconfig, err := c.plane.ServiceAccountKubeconfig(ctx, controlplane.Namespace, gatewayProgram)
	if err != nil {
		return nil, err
	}
	port, healthPort, err := freePorts(ctx)
	if err != nil {
		return nil, err
	}
	g := &gateway{cluster: c, bench: b, url: "http://127.0.0.1:" + port, http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: manyClients}, Timeout: requestTimeout,
	}}
	g.process, err = startProcess(ctx, func(string) {}, filepath.Join(filepath.Dir(b.program), gatewayProgram),
		"--kubeconfig="+kubeconfig, "--bind-address=127.0.0.1", "--secure-port=0", "--insecure-port="+port,
		"--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:"+healthPort, "--keys-namespace="+keys.DefaultNamespace,
		// Simulated sandboxes have addresses of this machine. The limit of a key is not what
		// is measured.
		"--allow-loopback", "--key-rate=1e6", "--key-burst=1000000")
	if err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	asking, stop := context.WithCancel(ctx)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for !g.isReady(asking, "http://127.0.0.1:"+healthPort+"/readyz") {
			if sleep(asking, poolInterval) != nil {
				return
			}
		}
		close(ready)
	}()
	err = g.await(ctx, ready)
	stop()
	<-asked
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// freePorts are two ports that nobody listens at.
func freePorts(ctx context.Context) (a, b string, err error) {
	var ports [2]string
	for i := range ports {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return "", "", err
		}
		defer func() { _ = listener.Close() }() // both at the end, so that they differ
		if _, ports[i], err = net.SplitHostPort(listener.Addr().String()); err != nil {
			return "", "", err
		}
	}
	return ports[0], ports[1], nil
}

func (g *gateway) isReady(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	answer, err := g.http.Do(request)
	if err != nil {
		return false
	}
	_ = answer.Body.Close() // the status is all
	return answer.StatusCode == http.StatusOK
}

// team is a namespace whose users come by the E2B API.
type team struct {
	gateway *gateway
	pool    pool
	// key is an API key, and keyID its id.
	key, keyID string
	// clients are for the user as whom the gateway acts.
	clients []versioned.Interface
}

// team makes a team with a pool.
func (g *gateway) team(ctx context.Context, p pool) (*team, error) {
	if err := g.makePool(ctx, p); err != nil {
		return nil, err
	}
	if err := g.applyTeam(ctx, p.namespace); err != nil {
		return nil, err
	}
	t := &team{gateway: g, pool: p}
	record, text, err := keys.New(keys.NewSecrets(g.kube.CoreV1(), keys.DefaultNamespace, clock.RealClock{})).
		Issue(ctx, keys.Request{Team: p.namespace, Name: "bench"})
	if err != nil {
		return nil, err
	}
	t.key, t.keyID = text, record.ID
	kubeconfig, err := g.plane.ServiceAccountKubeconfig(ctx, p.namespace, v1alpha1.E2BServiceAccount)
	if err != nil {
		return nil, err
	}
	if t.clients, err = connect(kubeconfig, g.bench.connections); err != nil {
		return nil, err
	}
	return t, t.awaitRights(ctx)
}

// awaitRights waits until kube-apiserver knows the roles of the team.
func (t *team) awaitRights(ctx context.Context) error {
	for deadline := time.Now().Add(startTimeout); ; {
		_, err := t.clients[0].AgentsV1alpha1().SandboxSets(t.pool.namespace).List(ctx, metav1.ListOptions{})
		if err == nil || !apierrors.IsForbidden(err) || time.Now().After(deadline) {
			return err
		}
		if err := sleep(ctx, poolInterval); err != nil {
			return err
		}
	}
}

// applyTeam gives a namespace what the install has for teams.
func (g *gateway) applyTeam(ctx context.Context, namespace string) error {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return err
	}
	folder, err := filepath.Abs(filepath.Join(g.bench.dir, namespace))
	if err != nil {
		return err
	}
	component, err := filepath.Rel(folder, filepath.Join(root, "artifacts", "deploy", "components", "e2b-team"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("namespace: %s\ncomponents: [%q]\n", namespace, component)
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		return err
	}
	_, _, err = g.plane.Kubectl(ctx, "", nil, "apply", "--kustomize", folder)
	return err
}

// create makes a sandbox through the gateway, and returns its id.
func (t *team) create(ctx context.Context) (id string, err error) {
	body, err := json.Marshal(map[string]any{"templateID": t.pool.name(), "timeout": e2bTimeout})
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.gateway.url+"/sandboxes", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Api-Key", t.key)
	answer, err := t.gateway.http.Do(request)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return "", err
	}
	var made struct {
		SandboxID string `json:"sandboxID"`
	}
	if answer.StatusCode != http.StatusCreated {
		return "", fmt.Errorf("a create through the gateway was answered with %s %.300s", answer.Status, text)
	}
	if err := json.Unmarshal(text, &made); err != nil {
		return "", fmt.Errorf("the answer to a create through the gateway: %w", err)
	}
	if !strings.HasPrefix(made.SandboxID, t.pool.namespace+"--") {
		return "", fmt.Errorf("a create through the gateway was answered with the id %q", made.SandboxID)
	}
	return made.SandboxID, nil
}
