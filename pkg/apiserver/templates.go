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
	"github.com/sandlot-io/sandlot/pkg/apiserver/judge"
	sandboxrest "github.com/sandlot-io/sandlot/registry/sandbox/rest"
)

// templates finds what sets and templates refer to, and judges what comes of it.
type templates struct {
	lookup *templateLookup
	judge  *judge.Judge
	sets   *genericregistry.Store
}

// newTemplates returns templates that ask a cluster, unless that is nil. They read
// from no store yet.
func newTemplates(cluster *restclient.Config) (*templates, error) {
	t := &templates{lookup: &templateLookup{}}
	options := judge.Options{Lookup: t.lookup, Sets: t.setsOf}
	if cluster != nil {
		// What writes wait for is not limited here: each waits for 5 seconds at most, and
		// kube-apiserver protects itself.
		config := restclient.CopyConfig(cluster)
		config.QPS, config.RateLimiter = -1, nil
		client, err := corev1client.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("client of the cluster: %w", err)
		}
		t.lookup.podTemplates = client
		options.Pods = judge.NewDryRun(client.RESTClient(), clock.RealClock{})
	}
	t.judge = judge.New(options)
	return t, nil
}

// read lets them read from the stores, which are made with their judge. It is
// called before anything is served.
func (t *templates) read(stores sandboxrest.Stores) {
	t.lookup.templates, t.sets = stores.SandboxTemplates, stores.SandboxSets
}

// setsOf returns the sets of a namespace as the watch cache has them. They are not
// to be changed.
func (t *templates) setsOf(ctx context.Context, namespace string) ([]*v1alpha1.SandboxSet, error) {
	ctx = genericapirequest.WithNamespace(ctx, namespace)
	obj, err := t.sets.List(ctx, &metainternalversion.ListOptions{ResourceVersion: "0"})
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
