// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"

	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/memory"
)

// The names of the install, which are those of its programs too.
const (
	apiServerName   = "sandlot-apiserver"
	controllersName = "sandlot-controller-manager"
	etcdName        = "sandlot-etcd"
	etcdProgram     = "etcd"

	// servingSecret is the Secret of the serving certificate.
	servingSecret = "sandlot-apiserver-serving"

	// shutdownDelay is shorter than in a cluster, for the balancer forgets a server
	// that is not ready sooner than a Service does. The second half of it is for
	// connections to be asked to go elsewhere, which takes some tenths of a
	// second.
	shutdownDelay = "4s"
)

func (s *Sandlot) choosePorts() error {
	ports := map[string]*int{"sandlot-service": &s.balancerPort, "sandlot-metrics": &s.metricsPort}
	s.apiServerPorts = make([]int, s.options.Replicas)
	for i := range s.apiServerPorts {
		ports[fmt.Sprintf("%s-%d", apiServerName, i)] = &s.apiServerPorts[i]
	}
	if !s.options.hasStoreInside() {
		ports[etcdName] = &s.etcdPort
	}
	if s.options.Pods {
		ports["sandlot-restore"] = &s.restorePort
	}
	for name, port := range ports {
		var err error
		if *port, err = s.plane.ports.get(name, 0); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sandlot) makeProcesses(ctx context.Context, objects []unstructured.Unstructured) error {
	all, err := workloads(objects)
	if err != nil {
		return err
	}
	if s.controllers, err = s.makeControllers(ctx, all[controllersName]); err != nil {
		return err
	}
	if etcd, ok := all[etcdName]; ok {
		if s.etcd, err = s.makeEtcd(etcd); err != nil {
			return err
		}
	}
	kubeconfig, err := s.plane.ServiceAccountKubeconfig(ctx, s.options.Namespace, apiServerName)
	if err != nil {
		return err
	}
	for i := range s.apiServerPorts {
		p, err := s.makeAPIServer(all[apiServerName], i, kubeconfig)
		if err != nil {
			return err
		}
		s.apiServers = append(s.apiServers, p)
	}
	return nil
}

func (s *Sandlot) makeControllers(ctx context.Context, w workload) (*Process, error) {
	kubeconfig, err := s.plane.ServiceAccountKubeconfig(ctx, s.options.Namespace, controllersName)
	if err != nil {
		return nil, err
	}
	health, err := s.plane.ports.get("sandlot-health", 0)
	if err != nil {
		return nil, err
	}
	return s.process(w, processOptions{
		name: controllersName, program: controllersName, args: s.options.ControllerArgs,
		flags: map[string]string{
			"kubeconfig":                kubeconfig,
			"metrics-bind-address":      address(s.metricsPort),
			"health-probe-bind-address": address(health),
			// The overlay of the programs has none of the components that are a choice.
			"certificates-apiservice": strings.Join(s.served.apiServices(), ","),
		},
		ready: get(http.DefaultClient, "http://"+address(health)+"/readyz"),
	})
}

func (s *Sandlot) makeAPIServer(w workload, i int, kubeconfig string) (*Process, error) {
	name := fmt.Sprintf("%s-%d", apiServerName, i)
	flags := map[string]string{
		"kubeconfig":              kubeconfig,
		"bind-address":            loopback,
		"secure-port":             strconv.Itoa(s.apiServerPorts[i]),
		"shutdown-delay-duration": shutdownDelay,
		"audit-policy-file":       s.plane.file(auditPolicyFile),
		"audit-log-path":          filepath.Join(s.plane.logDir(), name+"-audit.log"),
	}
	if s.etcdPort != 0 {
		flags["etcd-servers"] = fmt.Sprintf("https://localhost:%d", s.etcdPort)
	}
	// Like a kubelet's, the probe asks whether it is ready, not whether it is the one.
	prober := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
	}}
	return s.process(w, processOptions{
		name: name, program: apiServerName, flags: flags, args: s.options.APIServerArgs,
		ready: get(prober, "https://"+address(s.apiServerPorts[i])+"/readyz"),
	})
}

// makeEtcd makes one member of the three.
func (s *Sandlot) makeEtcd(w workload) (*Process, error) {
	peer, err := s.plane.ports.get(etcdName+"-peer", 0)
	if err != nil {
		return nil, err
	}
	metrics, err := s.plane.ports.get(etcdName+"-metrics", 0)
	if err != nil {
		return nil, err
	}
	s.etcdMetricsPort = metrics
	clientURL := "https://" + address(s.etcdPort)
	peerURL := "https://" + address(peer)
	s.etcdFlags = map[string]string{
		"listen-client-urls":          clientURL,
		"advertise-client-urls":       clientURL,
		"listen-peer-urls":            peerURL,
		"initial-advertise-peer-urls": peerURL,
		"initial-cluster":             etcdName + "=" + peerURL,
		"listen-metrics-urls":         "http://" + address(metrics),
		"log-level":                   "warn",
	}
	return s.process(w, processOptions{
		name: etcdName, program: etcdProgram, args: s.plane.options.etcdArgs(), flags: s.etcdFlags,
		ready: get(http.DefaultClient, "http://"+address(metrics)+"/readyz"),
	})
}

type processOptions struct {
	name, program string
	flags         map[string]string // in place of the workload's
	args          []string          // after everything else
	ready         func(context.Context) error
}

// process makes a process of a workload.
func (s *Sandlot) process(w workload, o processOptions) (*Process, error) {
	path, err := s.path(o.program)
	if err != nil {
		return nil, err
	}
	var secrets []string
	process := s.podProcess(o.name, o.flags)
	volume := process.volume
	process.volume = func(v corev1.Volume) (string, error) {
		if v.Secret != nil && (v.Secret.Optional == nil || !*v.Secret.Optional) {
			secrets = append(secrets, s.secrets.path(v.Secret.SecretName))
		}
		return volume(v)
	}
	args, env, err := process.arguments(w)
	if err != nil {
		return nil, err
	}
	limit := w.pod.Containers[0].Resources.Limits.Memory().Value()
	if o.program != etcdProgram { // ours, which follow the limit of their cgroup
		env = append(env, fmt.Sprintf("GOMEMLIMIT=%d", int64(float64(limit)*memory.Share)))
	}
	p := newProcess(command{name: o.name, path: path, args: append(args, o.args...), env: env, ready: o.ready}, s.plane.logDir())
	p.memoryLimit = limit
	s.volumes[p] = secrets
	return p, nil
}

// podProcess is how a pod of the install becomes a process.
func (s *Sandlot) podProcess(name string, flags map[string]string) podProcess {
	return podProcess{
		name:      name,
		namespace: s.options.Namespace,
		flags:     flags,
		volume: func(v corev1.Volume) (string, error) {
			switch {
			case v.Secret != nil:
				return s.secrets.path(v.Secret.SecretName), nil
			case v.EmptyDir != nil:
				return filepath.Join(s.dir, "scratch", name, v.Name), nil
			case v.Projected != nil: // the token, which is in a kubeconfig here
				return filepath.Join(s.dir, "projected", name, v.Name), nil
			}
			return "", errUnsupported
		},
		claim: func(claim string) string { return filepath.Join(s.dir, claim, name) },
	}
}

func (s *Sandlot) path(program string) (string, error) {
	if s.options.BinDir == "" || program == etcdProgram {
		return s.plane.programs.path(program)
	}
	dir, err := filepath.Abs(s.options.BinDir)
	if err != nil {
		return "", err
	}
	return programs{folders: []string{dir}}.path(program)
}

// awaitAPI returns when claims can be listed through the aggregator, and found, and
// everything else that is served as well.
func (c *ControlPlane) awaitAPI(ctx context.Context, versions served) error {
	client, err := versioned.NewForConfig(c.admin)
	if err != nil {
		return err
	}
	last := errors.New("not asked yet")
	err = wait.PollUntilContextTimeout(ctx, readyInterval, startPatience, true, func(ctx context.Context) (bool, error) {
		last = checkAPI(ctx, client, versions)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the API through the aggregator: %w, at last: %w", err, last)
	}
	return nil
}

// checkAPI lists claims, and checks that all that is served is in the list of
// all resources, from which clients and the garbage collector know it.
func checkAPI(ctx context.Context, client versioned.Interface, versions served) error {
	if _, err := client.AgentsV1alpha1().SandboxClaims(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return err
	}
	_, lists, err := discovery.ServerGroupsAndResources(client.Discovery())
	if err != nil && !meta.IsNoMatchError(err) {
		return err
	}
	found := sets.New[string]()
	for _, list := range lists {
		if len(list.APIResources) > 0 {
			found.Insert(list.GroupVersion)
		}
	}
	for _, gv := range versions {
		if !found.Has(gv.String()) {
			return fmt.Errorf("%s is not in discovery", gv)
		}
		// What is in the list may be what others have served until a moment ago.
		if _, err := client.Discovery().ServerResourcesForGroupVersion(gv.String()); err != nil {
			return fmt.Errorf("asking for %s: %w", gv, err)
		}
	}
	return nil
}
