// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/pkg/findings"
)

// Names of the programs: of their workloads, their service accounts and their leases.
const (
	apiServer         = "sandlot-apiserver"
	controllerManager = "sandlot-controller-manager"
)

// workload is what is looked at of a Deployment or StatefulSet.
type workload struct {
	kind, name                 string
	wanted, ready, current     int32
	generation, seenGeneration int64
	images                     []string
}

func (w *workload) String() string { return w.kind + " " + w.name }

func lookAtWorkloads(ctx context.Context, c *cluster) ([]findings.Finding, string, error) {
	deployments, err := c.kube.AppsV1().Deployments(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	statefulSets, err := c.kube.AppsV1().StatefulSets(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	all := workloadsOf(deployments.Items, statefulSets.Items)
	return judgeWorkloads(all, c.namespace), tellWorkloads(all), nil
}

// workloadsOf are those of the install, by their names.
func workloadsOf(deployments []appsv1.Deployment, statefulSets []appsv1.StatefulSet) (all []*workload) {
	add := func(w *workload, template *corev1.PodTemplateSpec) {
		if !strings.HasPrefix(w.name, "sandlot-") {
			return
		}
		for _, container := range template.Spec.Containers {
			w.images = append(w.images, container.Image)
		}
		all = append(all, w)
	}
	for _, d := range deployments {
		add(&workload{
			kind: "Deployment", name: d.Name, generation: d.Generation, seenGeneration: d.Status.ObservedGeneration,
			wanted: ptr.Deref(d.Spec.Replicas, 1), ready: d.Status.ReadyReplicas, current: d.Status.UpdatedReplicas,
		}, &d.Spec.Template)
	}
	for _, s := range statefulSets {
		add(&workload{
			kind: "StatefulSet", name: s.Name, generation: s.Generation, seenGeneration: s.Status.ObservedGeneration,
			wanted: ptr.Deref(s.Spec.Replicas, 1), ready: s.Status.ReadyReplicas, current: s.Status.UpdatedReplicas,
		}, &s.Spec.Template)
	}
	return all
}

func judgeWorkloads(all []*workload, namespace string) (found []findings.Finding) {
	for _, name := range []string{apiServer, controllerManager} {
		if !slices.ContainsFunc(all, func(w *workload) bool { return w.name == name }) {
			found = append(found, problem(findings.Warning, "", fmt.Sprintf("namespace %s has no Deployment or StatefulSet %s", namespace, name),
				"see that it runs elsewhere, or install it: docs/install.md"))
		}
	}
	for _, w := range all {
		switch {
		case w.wanted == 0:
			found = append(found, problem(findings.Error, w.String(), w.String()+" is scaled to 0", "scale it up"))
		case w.ready == 0:
			found = append(found, problem(findings.Error, w.String(), fmt.Sprintf("%s: none of its %d pods is ready", w, w.wanted),
				fmt.Sprintf("kubectl -n %s describe pods -l app.kubernetes.io/name=%s", namespace, w.name)))
		case w.ready < w.wanted:
			found = append(found, problem(findings.Warning, w.String(), fmt.Sprintf("%s: %d of %d pods are ready", w, w.ready, w.wanted),
				fmt.Sprintf("kubectl -n %s describe pods -l app.kubernetes.io/name=%s", namespace, w.name)))
		case w.seenGeneration < w.generation || w.current < w.wanted:
			found = append(found, problem(findings.Warning, w.String(), fmt.Sprintf("%s is being rolled out: %d of %d pods are of its current template", w, w.current, w.wanted),
				fmt.Sprintf("kubectl -n %s rollout status %s/%s", namespace, strings.ToLower(w.kind), w.name)))
		}
	}
	return append(found, judgeImages(all)...)
}

// judgeImages reports programs of several versions. Images of a digest alone have none to see.
func judgeImages(all []*workload) []findings.Finding {
	var tags, told []string
	for _, w := range all {
		for _, image := range w.images {
			name, _, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], "@")
			program, tag, tagged := strings.Cut(name, ":")
			if !tagged || !strings.HasPrefix(program, "sandlot-") {
				continue
			}
			if !slices.Contains(tags, tag) {
				tags = append(tags, tag)
			}
			told = append(told, program+" "+tag)
		}
	}
	if len(tags) < 2 {
		return nil
	}
	return []findings.Finding{problem(findings.Warning, "", "the programs are of several versions: "+strings.Join(told, ", "), "bring all to one version: docs/operations.md")}
}

// tellWorkloads reports what runs.
func tellWorkloads(all []*workload) string {
	told := make([]string, 0, len(all))
	for _, w := range all {
		told = append(told, fmt.Sprintf("%s %d/%d (%s)", w, w.ready, w.wanted, strings.Join(w.images, ", ")))
	}
	return strings.Join(told, "; ")
}
