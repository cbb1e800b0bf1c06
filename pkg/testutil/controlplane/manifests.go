// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// fieldManager is who applies the manifests.
const fieldManager = "local-control-plane"

// localOverlay is what of the install is applied, while the workloads are taken
// from another one and become processes here.
const localOverlay = "local"

// workload is what a Deployment or a StatefulSet runs.
type workload struct {
	pod corev1.PodSpec
	// claims are the names of its volumes that are kept.
	claims []string
}

// render returns the objects of an overlay of the install in a namespace.
func (c *ControlPlane) render(ctx context.Context, overlay, namespace string) ([]unstructured.Unstructured, error) {
	folder, err := c.kustomization(overlay, namespace)
	if err != nil {
		return nil, err
	}
	out, _, err := c.Kubectl(ctx, "", nil, "kustomize", folder)
	if err != nil {
		return nil, err
	}
	return decode(out)
}

// decode returns the objects of manifests.
func decode(manifests string) ([]unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewBufferString(manifests), 4096)
	var objects []unstructured.Unstructured
	for {
		var object unstructured.Unstructured
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the install: %w", err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// kustomization returns the folder of an overlay, or of one over it that says where the
// install is, as a user would. What has a namespace of its own is left out of that one.
func (c *ControlPlane) kustomization(overlay, namespace string) (string, error) {
	root, err := program.Root()
	if err != nil {
		return "", err
	}
	shipped := filepath.Join(root, "artifacts", "deploy", overlay)
	if namespace == Namespace {
		return shipped, nil
	}
	if overlay == localOverlay {
		shipped = filepath.Join(shipped, "install")
	}
	folder := c.file(filepath.Join("kustomize", overlay))
	// Both ends of a relative path are real ones to kustomize.
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return "", err
	}
	to, err := filepath.Rel(folder, shipped)
	if err != nil {
		return "", err
	}
	content := fmt.Sprintf("namespace: %s\nresources: [%s]\n", namespace, to)
	return folder, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(content), 0o600)
}

// workloads returns what an overlay runs, by name.
func workloads(objects []unstructured.Unstructured) (map[string]workload, error) {
	found := map[string]workload{}
	convert := runtime.DefaultUnstructuredConverter.FromUnstructured
	for _, object := range objects {
		switch object.GetKind() {
		case "Deployment":
			var deployment appsv1.Deployment
			if err := convert(object.Object, &deployment); err != nil {
				return nil, fmt.Errorf("deployment %s: %w", object.GetName(), err)
			}
			found[deployment.Name] = workload{pod: deployment.Spec.Template.Spec}
		case "StatefulSet":
			var set appsv1.StatefulSet
			if err := convert(object.Object, &set); err != nil {
				return nil, fmt.Errorf("statefulset %s: %w", object.GetName(), err)
			}
			w := workload{pod: set.Spec.Template.Spec}
			for _, claim := range set.Spec.VolumeClaimTemplates {
				w.claims = append(w.claims, claim.Name)
			}
			found[set.Name] = w
		}
	}
	return found, nil
}

// apply applies the install, with the port of the APIServices that are ours, and returns
// what they serve.
func (c *ControlPlane) apply(ctx context.Context, namespace string, port int) (served, error) {
	objects, err := c.render(ctx, localOverlay, namespace)
	if err != nil {
		return nil, err
	}
	var manifests bytes.Buffer
	for _, object := range objects {
		if object.GetKind() == "APIService" {
			if err := unstructured.SetNestedField(object.Object, int64(port), "spec", "service", "port"); err != nil {
				return nil, err
			}
		}
		content, err := object.MarshalJSON()
		if err != nil {
			return nil, err
		}
		manifests.Write(content)
	}
	_, _, err = c.Kubectl(ctx, "", &manifests, "apply", "--server-side", "--force-conflicts", "--field-manager="+fieldManager, "-f", "-")
	return servedBy(objects), err
}

// podKinds are the kinds of an install by which pods come and go, and what these need in the
// cluster besides what the local overlay has.
var podKinds = []string{
	"ClusterRole", "ClusterRoleBinding", "CronJob", "Deployment", "PersistentVolumeClaim", "Role", "RoleBinding", "Secret", "ServiceAccount", "StatefulSet",
}

// applyPods applies what makes the pods of an install, all of them on the node of processes.
func (c *ControlPlane) applyPods(ctx context.Context, o SandlotOptions) error {
	objects, err := c.render(ctx, o.Overlay, o.Namespace)
	if err != nil {
		return err
	}
	var manifests bytes.Buffer
	for _, object := range objects {
		if !slices.Contains(podKinds, object.GetKind()) {
			continue
		}
		replicas, pod := int64(1), []string{"spec", "template", "spec"}
		switch object.GetKind() {
		case "Deployment", "StatefulSet":
			if object.GetName() == apiServerName {
				replicas = int64(o.Replicas)
			}
			err = unstructured.SetNestedField(object.Object, replicas, "spec", "replicas")
		case "CronJob":
			pod = []string{"spec", "jobTemplate", "spec", "template", "spec"}
		default:
			pod = nil
		}
		if pod != nil {
			err = errors.Join(err, unstructured.SetNestedField(object.Object, ProcessNode, append(pod, "nodeName")...))
		}
		content, marshalErr := object.MarshalJSON()
		if err := errors.Join(err, marshalErr); err != nil {
			return err
		}
		manifests.Write(content)
	}
	_, _, err = c.Kubectl(ctx, "", &manifests, "apply", "--server-side", "--force-conflicts", "--field-manager="+fieldManager, "-f", "-")
	return err
}

// served are the group-versions that the install registers.
type served []schema.GroupVersion

func servedBy(objects []unstructured.Unstructured) (versions served) {
	for _, object := range objects {
		if object.GetKind() == "APIService" {
			group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
			version, _, _ := unstructured.NestedString(object.Object, "spec", "version")
			versions = append(versions, schema.GroupVersion{Group: group, Version: version})
		}
	}
	return versions
}

// apiServices are the names of their APIServices.
func (s served) apiServices() []string {
	names := make([]string, 0, len(s))
	for _, gv := range s {
		names = append(names, gv.Version+"."+gv.Group)
	}
	return names
}
