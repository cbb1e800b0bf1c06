// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options say where and how to run a control plane. The zero value of everything
// but Dir is good.
type Options struct {
	// Dir is the folder of all data, certificates and logs (log/<program>.log).
	// It is made if it is missing. A control plane that was stopped continues where
	// it was when another is started on the same folder.
	Dir string
	// BinDir is where the programs are. Without it, a program is taken from the
	// folder that KUBEBUILDER_ASSETS names, if it is there, and else from bin/
	// beside the go.mod of the working directory or a folder above it. If the environment
	// variable KUBERNETES names a minor, such as 1.36, the parts of the cluster are those
	// in bin/1.36.
	BinDir string
	// APIServerPort and EtcdPort are ports of 127.0.0.1; 0 takes a free one.
	APIServerPort, EtcdPort int
	// Nodes is how many nodes are simulated, each with room for 10,000 pods; 0 means 4, and a
	// negative number none.
	Nodes int
	// NodeGrace is how long a node may be silent before its pods are no longer ready. 0 is 15
	// minutes: a machine that is short of time must not lose nodes, nor one whose kwok is
	// stopped for a while.
	NodeGrace time.Duration
	// PodCIDR is what simulated pods get their addresses from: a loopback address
	// and its prefix length. Empty is 127.1.0.1/16.
	PodCIDR string
	// APIServerArgs are added to the flags of kube-apiserver.
	APIServerArgs []string
	// ForTests lets etcd, and that of Sandlot, answer before what it writes is on the disk:
	// in tests processes die, and no machines, and the time of a disk that others use too is
	// half of theirs. It also lets the programs of the cluster, which are not what is tested,
	// collect garbage less often.
	ForTests bool
}

// noFsync is the flag of etcd for the first of that, and lessGarbageCollection the setting of
// programs in Go for the second.
const (
	noFsync               = "--unsafe-no-fsync"
	lessGarbageCollection = "GOGC=400"
)

// etcdArgs are added to the flags of each etcd.
func (o *Options) etcdArgs() []string {
	if o.ForTests {
		return []string{noFsync}
	}
	return nil
}

// env is added to the environment of the programs of the cluster.
func (o *Options) env() []string {
	if o.ForTests {
		return []string{lessGarbageCollection}
	}
	return nil
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	options                 Options
	programs                programs
	ports                   *ports
	pki                     *pki
	admin                   *rest.Config
	client                  *http.Client // of servers with certificates of the cluster, without a user
	etcdPort, apiServerPort int

	etcd, apiServer, controllerManager, scheduler, kwok *Process

	provisioner *provisioner // once nodes are there

	mu      sync.Mutex
	sandlot *Sandlot // what is installed, if anything
}

// Start returns when everything is ready, nodes included. It leaves nothing
// running if it fails.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	c, err := prepare(o)
	if err != nil {
		return nil, fmt.Errorf("preparing a control plane: %w", err)
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// prepare makes everything but the processes run.
func prepare(o Options) (*ControlPlane, error) {
	if o.Dir == "" {
		return nil, errors.New("Dir is required")
	}
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	if o.Nodes == 0 {
		o.Nodes = defaultNodes
	}
	if o.NodeGrace == 0 {
		o.NodeGrace = defaultNodeGrace
	}
	c := &ControlPlane{options: o}
	for _, dir := range []string{o.Dir, c.logDir(), c.home()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if c.programs, err = findPrograms(o.BinDir); err != nil {
		return nil, err
	}
	if c.pki, err = openPKI(c.file("pki")); err != nil {
		return nil, err
	}
	if err := c.writeConfigs(); err != nil {
		return nil, err
	}
	if c.ports, err = loadPorts(c.file("ports.json")); err != nil {
		return nil, err
	}
	if err := c.configure(); err != nil {
		return nil, errors.Join(err, c.ports.release())
	}
	return c, nil
}

// configure makes what depends on the ports.
func (c *ControlPlane) configure() error {
	var err error
	if c.etcdPort, err = c.ports.get("etcd", c.options.EtcdPort); err != nil {
		return err
	}
	if c.apiServerPort, err = c.ports.get("kube-apiserver", c.options.APIServerPort); err != nil {
		return err
	}
	c.client = httpClient(c.pki.cluster.CA())
	if c.admin, err = c.User(adminName, "system:masters"); err != nil {
		return err
	}
	if _, err := c.writeKubeconfig(adminName, c.admin); err != nil {
		return err
	}
	return c.makeProcesses()
}

func (c *ControlPlane) makeProcesses() error {
	for _, p := range []struct {
		process **Process
		program string
		// user is who a client of kube-apiserver is.
		user    string
		groups  []string
		command func(path, kubeconfig string, port int) command
	}{
		{process: &c.etcd, program: "etcd", command: func(path, _ string, port int) command {
			return etcdCommand(path, "etcd", c.file("etcd"), c.etcdPort, port, c.options.etcdArgs()...)
		}},
		{process: &c.apiServer, program: "kube-apiserver", command: func(path, _ string, _ int) command {
			return c.apiServerCommand(path)
		}},
		{process: &c.controllerManager, program: "kube-controller-manager", user: "system:kube-controller-manager", command: c.controllerManagerCommand},
		{process: &c.scheduler, program: "kube-scheduler", user: "system:kube-scheduler", command: c.schedulerCommand},
		// kwok plays all kubelets and garbage collects their pods, so it is an admin.
		{process: &c.kwok, program: "kwok", user: "system:kwok", groups: []string{"system:masters"}, command: c.kwokCommand},
	} {
		path, err := c.programs.path(p.program)
		if err != nil {
			return err
		}
		kubeconfig := ""
		if p.user != "" {
			if kubeconfig, err = c.componentKubeconfig(p.user, p.groups...); err != nil {
				return err
			}
		}
		port, err := c.ports.get(p.program+"-internal", 0)
		if err != nil {
			return err
		}
		made := p.command(path, kubeconfig, port)
		made.env = append(made.env, c.options.env()...)
		*p.process = newProcess(made, c.logDir())
	}
	return nil
}

func (c *ControlPlane) start(ctx context.Context) error {
	for _, p := range []*Process{c.etcd, c.apiServer} {
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, p := range []*Process{c.controllerManager, c.scheduler, c.kwok} {
		group.Go(func() error { return p.Start(groupCtx) })
	}
	group.Go(func() error { return createNodes(groupCtx, client, c.options.Nodes) })
	if err := group.Wait(); err != nil {
		return err
	}
	if err := awaitNodes(ctx, client, c.options.Nodes); err != nil {
		return err
	}
	c.provisioner, err = startProvisioner(ctx, client, c)
	return err
}

// Stop stops everything, Sandlot first, and returns when all processes have
// ended.
func (c *ControlPlane) Stop() error {
	var errs []error
	c.mu.Lock()
	sandlot := c.sandlot
	c.mu.Unlock()
	if sandlot != nil {
		errs = append(errs, sandlot.Stop())
	}
	if c.provisioner != nil {
		c.provisioner.stop()
	}
	var group errgroup.Group
	for _, p := range []*Process{c.kwok, c.scheduler, c.controllerManager} {
		group.Go(p.Stop)
	}
	errs = append(errs, group.Wait(), c.apiServer.Stop(), c.etcd.Stop())
	c.client.CloseIdleConnections()
	return errors.Join(append(errs, c.ports.release())...)
}

// Etcd is the etcd of the cluster. Sandlot has its own.
func (c *ControlPlane) Etcd() *Process { return c.etcd }

// APIServer is kube-apiserver.
func (c *ControlPlane) APIServer() *Process { return c.apiServer }

// Processes are those of the cluster.
func (c *ControlPlane) Processes() []*Process {
	return []*Process{c.etcd, c.apiServer, c.controllerManager, c.scheduler, c.kwok}
}

// AuditLog returns the path of the audit log of kube-apiserver, a JSON line an
// event.
func (c *ControlPlane) AuditLog() string {
	return filepath.Join(c.logDir(), "kube-apiserver-audit.log")
}

// Dir returns the folder of everything that the control plane keeps.
func (c *ControlPlane) Dir() string { return c.options.Dir }
