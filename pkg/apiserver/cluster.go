// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"sync"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/podvalidation"
)

// cluster is the cluster that the server belongs to.
type cluster struct {
	client kubernetes.Interface
	// unlimited reads the Pods of sandboxes, without a limit on the rate: the connections of
	// users to their sandboxes must not use up the limit of client.
	unlimited corev1client.CoreV1Interface
	informers informers.SharedInformerFactory
}

// newCluster returns nil for a server without a cluster.
func newCluster(config *restclient.Config, informers informers.SharedInformerFactory) (*cluster, error) {
	if config == nil {
		return nil, nil
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	config = restclient.CopyConfig(config)
	config.RateLimiter, config.QPS = nil, -1
	unlimited, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	return &cluster{client, unlimited, informers}, nil
}

// core returns nil where there is no cluster.
func (c *cluster) core() corev1client.CoreV1Interface {
	if c == nil {
		return nil
	}
	return c.client.CoreV1()
}

// pods returns nil where there is no cluster.
func (c *cluster) pods() corev1client.PodsGetter {
	if c == nil {
		return nil
	}
	return c.unlimited
}

// nodes returns nil where there is no cluster.
func (c *cluster) nodes() corev1client.NodeInterface {
	if c == nil {
		return nil
	}
	return c.client.CoreV1().Nodes()
}

// newGate returns the way to the dry runs of pods, or nil where there is no cluster.
func (c *cluster) newGate() *podvalidation.Gate {
	if c == nil {
		return nil
	}
	admission := c.informers.Admissionregistration().V1()
	policies, bindings := admission.ValidatingAdmissionPolicies(), admission.ValidatingAdmissionPolicyBindings()
	return podvalidation.NewGate(podvalidation.GateOptions{
		Pods:     podvalidation.NewDryRun(c.client.CoreV1().RESTClient(), clock.RealClock{}),
		Cluster:  c.client,
		Policies: policies.Lister(),
		Bindings: bindings.Lister(),
		Synced:   []cache.InformerSynced{policies.Informer().HasSynced, bindings.Informer().HasSynced},
		Clock:    clock.RealClock{},
	})
}

// newPodValidator returns the validator of the pods of sets and templates. Without a
// cluster, which has no gate, it checks what can be known of them.
func newPodValidator(gate *podvalidation.Gate, lookup *templateLookup, sets *genericregistry.Store) *podvalidation.Validator {
	options := podvalidation.Options{
		Lookup: lookup,
		Sets: func(ctx context.Context, namespace string) ([]*v1alpha1.SandboxSet, error) {
			// As the watch cache has them.
			all, _, err := list[*v1alpha1.SandboxSet](ctx, sets, namespace, &metainternalversion.ListOptions{ResourceVersion: "0"})
			return all, err
		},
	}
	if gate != nil {
		options.Pods = gate
	}
	return podvalidation.New(options)
}

// addGate lets the server run a gate, and wait for its end.
func addGate(gate *podvalidation.Gate, server *genericapiserver.GenericAPIServer) error {
	if gate == nil {
		return nil
	}
	var running sync.WaitGroup
	err := server.AddPostStartHook("pod-dry-runs", func(hook genericapiserver.PostStartHookContext) error {
		running.Go(func() { gate.Run(hook) })
		return nil
	})
	if err != nil {
		return fmt.Errorf("adding the hook of dry runs: %w", err)
	}
	server.RegisterDestroyFunc(running.Wait)
	return nil
}
