// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlot-io/sandlot/pkg/install/secrets"
)

// apiService is an APIService that is there and is ours.
type apiService struct {
	object   *unstructured.Unstructured
	caBundle []byte
}

// loadAPIServices returns those of the authority that there are.
func (o *objects) loadAPIServices(ctx context.Context, a authority) ([]apiService, error) {
	var services []apiService
	for _, name := range a.apiServices {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(secrets.APIService)
		err := o.store.Reader.Get(ctx, client.ObjectKey{Name: name}, object)
		if apierrors.IsNotFound(err) {
			continue // its creation will wake us
		}
		if err != nil {
			return nil, fmt.Errorf("getting APIService %s: %w", name, err)
		}
		if !o.serves(object) {
			log.FromContext(ctx).V(2).Info("Kept the caBundle of an APIService that another server serves", "apiservice", name)
			continue
		}
		encoded, _, err := unstructured.NestedString(object.Object, "spec", "caBundle")
		if err != nil {
			return nil, fmt.Errorf("APIService %s: %w", name, err)
		}
		caBundle, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return nil, fmt.Errorf("caBundle of APIService %s: %w", name, err)
		}
		services = append(services, apiService{object: object, caBundle: caBundle})
	}
	return services, nil
}

// serves reports whether it is our Service that an APIService names. kube-apiserver
// makes APIServices without any Service for the groups of CustomResourceDefinitions,
// which may be there before ours take their place.
func (o *objects) serves(object *unstructured.Unstructured) bool {
	namespace, _, _ := unstructured.NestedString(object.Object, "spec", "service", "namespace")
	name, _, _ := unstructured.NestedString(object.Object, "spec", "service", "name")
	return namespace == o.options.Namespace && name == o.options.APIServerService
}

// publish puts the bundle into the APIServices, and reports whether it is wherever the
// authority has to publish it: in all of them that there are, of which one is there.
func (o *objects) publish(ctx context.Context, a authority, services []apiService, bundle []byte) (bool, error) {
	for _, service := range services {
		if err := o.publishTo(ctx, service, bundle); err != nil {
			return false, err
		}
	}
	return len(a.apiServices) == 0 || len(services) > 0, nil
}

// publishTo puts the bundle into an APIService. It turns off insecureSkipTLSVerify,
// which excludes a caBundle.
func (o *objects) publishTo(ctx context.Context, service apiService, bundle []byte) error {
	if bytes.Equal(service.caBundle, bundle) {
		return nil
	}
	name := service.object.GetName()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": service.object.GetResourceVersion()},
		"spec":     map[string]any{"caBundle": bundle, "insecureSkipTLSVerify": nil},
	})
	if err != nil {
		return fmt.Errorf("patch of APIService %s: %w", name, err)
	}
	if err := o.store.Writer.Patch(ctx, service.object, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return fmt.Errorf("patching the caBundle of APIService %s: %w", name, err)
	}
	return nil
}

// oldestPod returns when the oldest Pod was made that mounts a Secret of the
// authority, if that matters.
func (o *objects) oldestPod(ctx context.Context, a authority) (time.Time, error) {
	oldest := time.Time{}
	if !a.restarts {
		return oldest, nil
	}
	pods := &corev1.PodList{}
	if err := o.store.Reader.List(ctx, pods, client.InNamespace(o.options.Namespace)); err != nil {
		return oldest, fmt.Errorf("listing the Pods that trust %s: %w", a.name, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		made := pod.CreationTimestamp.Time
		if a.isMountedBy(pod) && (oldest.IsZero() || made.Before(oldest)) {
			oldest = made
		}
	}
	return oldest, nil
}

// isMountedBy reports whether a Pod that has not ended mounts one of the Secrets
// that have the bundle, or the bundle itself.
func (a authority) isMountedBy(pod *corev1.Pod) bool {
	return !secrets.Ended(pod) &&
		secrets.Mounts(pod, a.signs, func(configMap string) bool { return configMap == a.bundle })
}

func (a authority) signs(secret string) bool {
	return slices.ContainsFunc(a.targets, func(t target) bool { return t.secret == secret })
}
