// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/podvalidation"
)

// newClusterClient returns a client of the cluster, or nil where there is none. What
// writes wait for is not limited here: each waits for 5 seconds at most, and
// kube-apiserver protects itself.
func newClusterClient(cluster *restclient.Config) (corev1client.CoreV1Interface, error) {
	if cluster == nil {
		return nil, nil
	}
	config := restclient.CopyConfig(cluster)
	config.QPS, config.RateLimiter = -1, nil
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	return client, nil
}

// newPodValidator returns the validator of the pods of sets and templates. Without a
// cluster it checks what can be known of them.
func newPodValidator(cluster corev1client.CoreV1Interface, lookup *templateLookup, sets *genericregistry.Store) *podvalidation.Validator {
	options := podvalidation.Options{
		Lookup: lookup,
		Sets: func(ctx context.Context, namespace string) ([]*v1alpha1.SandboxSet, error) {
			return cachedSets(ctx, sets, namespace)
		},
	}
	if cluster != nil {
		options.Pods = podvalidation.NewDryRun(cluster.RESTClient(), clock.RealClock{})
	}
	return podvalidation.New(options)
}

// cachedSets returns the sets of a namespace as the watch cache has them. They are
// not to be changed.
func cachedSets(ctx context.Context, store *genericregistry.Store, namespace string) ([]*v1alpha1.SandboxSet, error) {
	ctx = genericapirequest.WithNamespace(ctx, namespace)
	obj, err := store.List(ctx, &metainternalversion.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("listing sandboxsets in %s: %w", namespace, err)
	}
	list, ok := obj.(*v1alpha1.SandboxSetList)
	if !ok {
		return nil, fmt.Errorf("listing sandboxsets: got a %T", obj)
	}
	sets := make([]*v1alpha1.SandboxSet, 0, len(list.Items))
	for i := range list.Items {
		sets = append(sets, &list.Items[i])
	}
	return sets, nil
}
