// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Namespace is where Sandlot is installed by default.
const Namespace = "sandlot-system"

// SandlotOptions say how to install Sandlot. The zero value is good.
type SandlotOptions struct {
	// BinDir is where sandlot-apiserver and sandlot-controller-manager are. Empty
	// means the folder that the other programs are looked for in.
	BinDir string
	// Overlay is the overlay of artifacts/deploy whose programs are run: "default",
	// which is the default, or "single" or "small", with the store inside the one API
	// server.
	Overlay string
	// Namespace is where it is installed. Empty means the constant of this name.
	Namespace string
	// Apply, if it is set, puts the install into the cluster in place of kubectl, and returns
	// its manifests, whose programs are run. They must be those of the overlay, the
	// APIServices must name the port, and their Service lead to this machine; with Pods, each
	// pod must be for ProcessNode, and each workload have as many as there are processes.
	Apply func(ctx context.Context, port int) (manifests string, err error)
	// Replicas is how many API servers run; 0 means 2, or 1 where the store is inside.
	Replicas int
	// APIServerArgs and ControllerArgs are added to the flags of the programs.
	APIServerArgs, ControllerArgs []string
	// NoControllers stops the controllers as soon as they have made the
	// certificates; Controllers().Start starts them.
	NoControllers bool
	// Pods has the Deployments, StatefulSets and CronJobs of the install in the cluster too,
	// with pods for which the processes stand: they start, stop and run Jobs as these say.
	Pods bool
}

// hasStoreInside reports whether the API server has its etcd inside.
func (o SandlotOptions) hasStoreInside() bool { return o.Overlay == "single" || o.Overlay == "small" }

func (o SandlotOptions) withDefaults() (SandlotOptions, error) {
	if o.Overlay == "" {
		o.Overlay = "default"
	}
	if o.Namespace == "" {
		o.Namespace = Namespace
	}
	if o.Replicas == 0 {
		o.Replicas = 2
		if o.hasStoreInside() {
			o.Replicas = 1
		}
	}
	if o.hasStoreInside() && o.Replicas != 1 {
		return o, errors.New("several API servers cannot share a store inside one of them")
	}
	return o, nil
}

// Sandlot is an installed Sandlot: its processes and their etcd.
type Sandlot struct {
	plane   *ControlPlane
	options SandlotOptions
	dir     string

	secrets     *secretVolumes
	balancer    *balancer
	etcd        *Process // nil if it is inside the API server
	apiServers  []*Process
	controllers *Process
	// volumes are the folders of Secrets that a process waits for.
	volumes map[*Process][]string

	// served are the group-versions of its API.
	served served

	// node runs the pods of the install, if they are in the cluster.
	node *processNode
	// etcdFlags are those of etcd that are others than in the install.
	etcdFlags map[string]string

	restorePort                                          int
	etcdPort, etcdMetricsPort, balancerPort, metricsPort int
	apiServerPorts                                       []int

	stop sync.Once
}

// errInstalled means that there is no room for a second one.
var errInstalled = errors.New("Sandlot is installed and has not been stopped")

// Install runs Sandlot against the control plane and returns when its API can be
// used through the aggregator. What can be had without kubelets is the install
// that is shipped: access, Service, APIService, and the arguments of the programs.
func (c *ControlPlane) Install(ctx context.Context, o SandlotOptions) (*Sandlot, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sandlot != nil {
		return nil, errInstalled
	}
	s := &Sandlot{plane: c, options: o, dir: c.file("sandlot"), volumes: map[*Process][]string{}}
	if err := s.install(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("installing Sandlot: %w", err), s.stopAll())
	}
	c.sandlot = s
	return s, nil
}

func (s *Sandlot) install(ctx context.Context) error {
	if err := s.choosePorts(); err != nil {
		return err
	}
	programs, err := s.apply(ctx)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(s.plane.admin)
	if err != nil {
		return err
	}
	if s.secrets, err = newSecretVolumes(client, s.options.Namespace, filepath.Join(s.dir, "secrets")); err != nil {
		return err
	}
	s.secrets.start()
	if err := s.makeProcesses(ctx, programs); err != nil {
		return err
	}
	if err := s.start(ctx); err != nil || !s.options.Pods {
		return err
	}
	if s.node, err = startProcessNode(ctx, s, client); err != nil {
		return err
	}
	if s.options.Apply != nil {
		return nil // has made them
	}
	return s.plane.applyPods(ctx, s.options)
}

// apply puts the install into the cluster, and returns the objects whose programs are run.
func (s *Sandlot) apply(ctx context.Context) ([]unstructured.Unstructured, error) {
	if s.options.Apply == nil {
		var err error
		if s.served, err = s.plane.apply(ctx, s.options.Namespace, s.balancerPort); err != nil {
			return nil, err
		}
		return s.plane.render(ctx, s.options.Overlay, s.options.Namespace)
	}
	manifests, err := s.options.Apply(ctx, s.balancerPort)
	if err != nil {
		return nil, err
	}
	objects, err := decode(manifests)
	if err != nil {
		return nil, err
	}
	s.served = servedBy(objects)
	return objects, nil
}

// start goes in the order in which the parts need each other, as pods would that
// wait for their Secrets: the controllers make the certificates.
func (s *Sandlot) start(ctx context.Context) error {
	if err := s.controllers.Launch(); err != nil {
		return err
	}
	servers := s.apiServers
	if s.etcd != nil {
		if err := s.secrets.await(ctx, s.volumes[s.etcd], s.controllers); err != nil {
			return err
		}
		if err := s.etcd.Start(ctx); err != nil {
			return err
		}
	}
	var backends []backend
	group, groupCtx := errgroup.WithContext(ctx)
	for i, p := range servers {
		backends = append(backends, backend{address: address(s.apiServerPorts[i]), ready: p.command.ready})
		group.Go(func() error {
			if err := s.secrets.await(groupCtx, s.volumes[p], s.controllers); err != nil {
				return err
			}
			return p.Start(groupCtx)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var err error
	if s.balancer, err = newBalancer(ctx, address(s.balancerPort), backends); err != nil {
		return err
	}
	if err := s.plane.awaitAPI(ctx, s.served); err != nil {
		return err
	}
	if s.options.NoControllers {
		return s.controllers.Stop()
	}
	return s.controllers.AwaitReady(ctx)
}

// APIServers are the replicas of sandlot-apiserver.
func (s *Sandlot) APIServers() []*Process { return s.apiServers }

// Controllers is sandlot-controller-manager. After it was killed, the next one
// waits until the lease of the dead one has run out before it does its work.
func (s *Sandlot) Controllers() *Process { return s.controllers }

// Etcd is Sandlot's own etcd, or nil if that is inside the API server.
func (s *Sandlot) Etcd() *Process { return s.etcd }

// Processes are all of the above.
func (s *Sandlot) Processes() []*Process {
	all := append([]*Process{s.controllers}, s.apiServers...)
	if s.etcd != nil {
		all = append(all, s.etcd)
	}
	return all
}

// URL is the direct address of a replica, past the aggregator.
func (s *Sandlot) URL(i int) string { return fmt.Sprintf("https://localhost:%d", s.apiServerPorts[i]) }

// Direct returns a copy of a user's config that goes to a replica directly, past
// the aggregator.
func (s *Sandlot) Direct(i int, user *rest.Config) (*rest.Config, error) {
	return s.at(s.URL(i), user)
}

// Service returns a copy of a user's config that goes to the Service of the API
// servers, past the aggregator: each connection to one that is ready.
func (s *Sandlot) Service(user *rest.Config) (*rest.Config, error) {
	return s.at(fmt.Sprintf("https://localhost:%d", s.balancerPort), user)
}

func (s *Sandlot) at(url string, user *rest.Config) (*rest.Config, error) {
	ca, err := os.ReadFile(filepath.Join(s.secrets.path(servingSecret), "ca.crt"))
	if err != nil {
		return nil, err
	}
	direct := rest.CopyConfig(user)
	direct.Host = url
	direct.CAFile, direct.CAData = "", ca
	return direct, nil
}

// AuditLog returns the path of the audit log of a replica, a JSON line an event.
func (s *Sandlot) AuditLog(i int) string {
	return filepath.Join(s.plane.logDir(), s.apiServers[i].Name()+"-audit.log")
}

// Metrics returns a copy of a user's config that goes to where sandlot-controller-manager
// serves its metrics. It knows users by tokens only.
func (s *Sandlot) Metrics(user *rest.Config) (*rest.Config, error) {
	return s.at(fmt.Sprintf("https://localhost:%d", s.metricsPort), user)
}

// EtcdMetricsURL is where Sandlot's own etcd serves its metrics, or empty if that is
// inside the API server.
func (s *Sandlot) EtcdMetricsURL() string {
	if s.etcdMetricsPort == 0 {
		return ""
	}
	return "http://" + address(s.etcdMetricsPort) + "/metrics"
}

// Stop stops the processes of Sandlot and returns when they have ended. What is
// in the cluster stays, and so does what is in the store.
func (s *Sandlot) Stop() error {
	var err error
	s.stop.Do(func() { err = s.stopAll() })
	s.plane.mu.Lock()
	defer s.plane.mu.Unlock()
	if s.plane.sandlot == s {
		s.plane.sandlot = nil
	}
	return err
}

func (s *Sandlot) stopAll() error {
	if s.node != nil {
		s.node.stop()
	}
	var group errgroup.Group
	for _, p := range append([]*Process{s.controllers}, s.apiServers...) {
		if p != nil {
			group.Go(p.Stop)
		}
	}
	err := group.Wait()
	if s.etcd != nil {
		err = errors.Join(err, s.etcd.Stop())
	}
	if s.balancer != nil {
		s.balancer.close()
	}
	if s.secrets != nil {
		s.secrets.close()
	}
	return err
}
