// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/install/certificates"
	"github.com/sandlot-io/sandlot/pkg/install/encryptionkeys"
)

// madeLater are the Secrets that an overlay uses and does not hold: those that
// the controllers make, and those that docs/install.md asks the user for.
var madeLater = map[string][]string{
	"default": {
		certificates.ServingSecret, encryptionkeys.Secret,
		certificates.EtcdServerSecret, certificates.EtcdPeerSecret, certificates.EtcdClientSecret,
	},
	"single":        {certificates.ServingSecret, encryptionkeys.Secret},
	"external-etcd": {certificates.ServingSecret, encryptionkeys.Secret, certificates.EtcdClientSecret},
	"small":         {certificates.ServingSecret, encryptionkeys.Secret},
}

// Everything that is named is there, or is made at run time.
func TestReferences(t *testing.T) {
	for _, overlay := range overlays {
		t.Run(overlay, func(t *testing.T) {
			checkReferences(t, render(t, overlay), madeLater[overlay])
		})
	}
}

// checkReferences: Secrets are used that are made later, and no others.
func checkReferences(t *testing.T, objects manifests, madeLater []string) {
	t.Helper()
	namespaces := []string{"", namespace}
	for _, ns := range of[*corev1.Namespace](objects) {
		namespaces = append(namespaces, ns.Name)
	}
	for _, object := range objects {
		if ns := object.GetNamespace(); !slices.Contains(namespaces, ns) {
			t.Errorf("%T %s is in namespace %s", object, object.GetName(), ns)
		}
	}
	var secrets []string
	for _, w := range workloads(objects) {
		spec := w.template.Spec
		if get[*schedulingv1.PriorityClass](objects, spec.PriorityClassName) == nil {
			t.Errorf("%s: no PriorityClass %q", w, spec.PriorityClassName)
		}
		if account := get[*corev1.ServiceAccount](objects, spec.ServiceAccountName); account == nil {
			t.Errorf("%s: no ServiceAccount %q", w, spec.ServiceAccountName)
		}
		for _, volume := range spec.Volumes {
			switch {
			case volume.Secret != nil:
				if get[*corev1.Secret](objects, volume.Secret.SecretName) == nil {
					secrets = append(secrets, volume.Secret.SecretName)
				}
			case volume.ConfigMap != nil:
				if get[*corev1.ConfigMap](objects, volume.ConfigMap.Name) == nil {
					t.Errorf("%s: no ConfigMap %q", w, volume.ConfigMap.Name)
				}
			}
		}
	}
	slices.Sort(secrets)
	want := slices.Sorted(slices.Values(madeLater))
	if !slices.Equal(secrets, want) {
		t.Errorf("Secrets used: %q, made at run time: %q", secrets, want)
	}
	for _, set := range of[*appsv1.StatefulSet](objects) {
		if get[*corev1.Service](objects, set.Spec.ServiceName) == nil {
			t.Errorf("StatefulSet %s: no Service %q", set.Name, set.Spec.ServiceName)
		}
	}
	checkBindings(t, objects)
}

// Priority levels that flow schemas name are there, or every cluster has them.
// A schema with another level has no effect: Kubernetes accepts it and handles
// its requests like all others.
func TestPriorityLevels(t *testing.T) {
	each(t, func(t *testing.T, objects manifests) {
		schemas := of[*flowcontrolv1.FlowSchema](objects)
		if len(schemas) == 0 {
			t.Error("no flow schemas")
		}
		used := map[string]bool{"leader-election": true}
		for _, level := range of[*flowcontrolv1.PriorityLevelConfiguration](objects) {
			used[level.Name] = false
		}
		for _, schema := range schemas {
			name := schema.Spec.PriorityLevelConfiguration.Name
			if _, known := used[name]; !known {
				t.Errorf("FlowSchema %s: no PriorityLevelConfiguration %q", schema.Name, name)
			}
			used[name] = true
		}
		for name, used := range used {
			if !used {
				t.Errorf("PriorityLevelConfiguration %s takes its share of every API server, and nobody is in it", name)
			}
		}
	})
}

func checkBindings(t *testing.T, objects manifests) {
	t.Helper()
	check := func(name string, role rbacv1.RoleRef, subjects []rbacv1.Subject) {
		builtIn := role.Name == "system:auth-delegator"
		known := role.Kind == "Role" && get[*rbacv1.Role](objects, role.Name) != nil ||
			role.Kind == "ClusterRole" && get[*rbacv1.ClusterRole](objects, role.Name) != nil
		if !known && !builtIn {
			t.Errorf("%s: no %s %s", name, role.Kind, role.Name)
		}
		for _, subject := range subjects {
			if subject.Kind != "ServiceAccount" || subject.Namespace != namespace || get[*corev1.ServiceAccount](objects, subject.Name) == nil {
				t.Errorf("%s: %v is none of our service accounts", name, subject)
			}
		}
	}
	for _, b := range of[*rbacv1.RoleBinding](objects) {
		check(b.Name, b.RoleRef, b.Subjects)
	}
	for _, b := range of[*rbacv1.ClusterRoleBinding](objects) {
		check(b.Name, b.RoleRef, b.Subjects)
	}
}

// The aggregator finds the server by the names that its certificate has. The
// caBundle is left to the controllers: otherwise each apply would remove it.
func TestAPIService(t *testing.T) {
	for _, overlay := range append([]string{"local"}, overlays...) {
		t.Run(overlay, func(t *testing.T) {
			objects := render(t, overlay)
			certs := certificates.NewOptions()
			api := get[*unstructured.Unstructured](objects, certs.APIServices[0])
			if api == nil {
				t.Fatalf("no APIService %s", certs.APIServices[0])
			}
			spec := api.Object["spec"].(map[string]any)
			if spec["group"] != v1alpha1.GroupName || spec["version"] != v1alpha1.SchemeGroupVersion.Version {
				t.Errorf("it is for %v/%v", spec["group"], spec["version"])
			}
			for _, field := range []string{"caBundle", "insecureSkipTLSVerify"} {
				if value, ok := spec[field]; ok {
					t.Errorf("%s is set: %v", field, value)
				}
			}
			reference := spec["service"].(map[string]any)
			service := get[*corev1.Service](objects, certs.APIServerService)
			if service == nil || reference["name"] != service.Name || reference["namespace"] != namespace {
				t.Fatalf("it is served by %v", reference)
			}
			if overlay == "local" {
				if service.Spec.Type != corev1.ServiceTypeExternalName || len(workloads(objects)) > 0 {
					t.Errorf("local has Service %v and workloads %v", service.Spec, workloads(objects))
				}
				return
			}
			if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return any(int64(p.Port)) == asInt64(reference["port"]) }) {
				t.Errorf("Service %s has no port %v", service.Name, reference["port"])
			}
		})
	}
}

func asInt64(number any) any {
	if f, ok := number.(float64); ok {
		return int64(f)
	}
	return number
}
