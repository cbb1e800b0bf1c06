// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
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
			// As the watch cache has them.
			all, _, err := list[*v1alpha1.SandboxSet](ctx, sets, namespace, &metainternalversion.ListOptions{ResourceVersion: "0"})
			return all, err
		},
	}
	if cluster != nil {
		options.Pods = podvalidation.NewDryRun(cluster.RESTClient(), clock.RealClock{})
	}
	return podvalidation.New(options)
}
