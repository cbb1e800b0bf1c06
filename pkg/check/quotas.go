// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/pager"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/findings"
)

// counted are what a quota must count so that users of a namespace cannot fill the store.
var counted = []corev1.ResourceName{
	"count/sandboxclaims." + v1alpha1.GroupName, "count/sandboxes." + v1alpha1.GroupName,
}

func lookAtQuotas(ctx context.Context, c *cluster) ([]findings.Finding, string, error) {
	used := sets.New[string]()
	// Not claims, whose specs may have secrets in them: they take from what is there in their namespace.
	for _, resource := range []string{"sandboxsets", "sandboxtemplates"} {
		client := c.metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource(resource))
		list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) })
		err := list.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
			if its, ok := object.(metav1.Object); ok {
				used.Insert(its.GetNamespace())
			}
			return nil
		})
		if err != nil {
			return nil, "", err
		}
	}
	quotas, err := c.kube.CoreV1().ResourceQuotas(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	return judgeQuotas(used, quotas.Items), fmt.Sprintf("%d namespaces have pools or templates, all with quotas that have room", used.Len()), nil
}

// maxNamed is how many namespaces are named.
const maxNamed = 10

func judgeQuotas(used sets.Set[string], quotas []corev1.ResourceQuota) (found []findings.Finding) {
	limited := map[string]sets.Set[corev1.ResourceName]{}
	for _, quota := range quotas {
		if !used.Has(quota.Namespace) {
			continue
		}
		if limited[quota.Namespace] == nil {
			limited[quota.Namespace] = sets.New[corev1.ResourceName]()
		}
		for _, name := range slices.Sorted(maps.Keys(quota.Spec.Hard)) {
			if !strings.HasSuffix(string(name), "."+v1alpha1.GroupName) {
				continue
			}
			limited[quota.Namespace].Insert(name)
			hard, has := quota.Spec.Hard[name], quota.Status.Used[name]
			if has.Cmp(hard) >= 0 {
				object := "ResourceQuota " + quota.Namespace + "/" + quota.Name
				found = append(found, problem(findings.Warning, object, fmt.Sprintf("%s is full: %s of %s %s", object, has.String(), hard.String(), name),
					"raise it, or have what is not needed deleted or released"))
			}
		}
	}
	var without []string
	for _, namespace := range slices.Sorted(maps.Keys(used)) {
		if !limited[namespace].HasAll(counted...) {
			without = append(without, "Namespace "+namespace)
		}
	}
	if len(without) > 0 {
		f := problem(findings.Warning, "", fmt.Sprintf("%d namespaces with pools or templates have no quota of claims and of sandboxes", len(without)),
			"give each a quota: docs/install.md, Roles for users")
		f.Objects = without[:min(len(without), maxNamed)]
		found = append(found, f)
	}
	return found
}
