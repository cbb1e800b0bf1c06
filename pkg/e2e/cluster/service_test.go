// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const portsTemplate = `{"spec":{"containers":[{"name":"main","image":"busybox:1","ports":[{"containerPort":8080,"name":"http"},{"containerPort":9090}]}],
	"initContainers":[{"name":"agent","image":"busybox:1","restartPolicy":"Always","ports":[{"containerPort":53,"protocol":"UDP"}]},
		{"name":"load","image":"busybox:1","ports":[{"containerPort":1}]}]}}`

// awaitService waits until the Service of a sandbox is as it should be: headless, for
// its pod, with the ports of portsTemplate.
func (c *clients) awaitService(t testing.TB, ns, name string) *corev1.Service {
	t.Helper()
	var service *corev1.Service
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		var err error
		if service, err = c.kube.CoreV1().Services(ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		var ports []string
		for _, port := range service.Spec.Ports {
			ports = append(ports, fmt.Sprintf("%s %d %s", port.Name, port.Port, port.Protocol))
		}
		spec := service.Spec
		if !slices.Equal(ports, []string{"http 8080 TCP", "p-9090-tcp 9090 TCP", "p-53-udp 53 UDP"}) || spec.ClusterIP != corev1.ClusterIPNone ||
			len(spec.Selector) != 1 || spec.Selector[v1alpha1.LabelSandboxName] != name || service.Labels[v1alpha1.LabelCreatedBy] != v1alpha1.CreatedBySandbox {
			return fmt.Errorf("labels %v, spec %+v", service.Labels, spec)
		}
		if spec.Type != corev1.ServiceTypeClusterIP || spec.ExternalName != "" || len(spec.ExternalIPs) > 0 || spec.SessionAffinity != corev1.ServiceAffinityNone {
			return fmt.Errorf("spec %+v", spec)
		}
		if owner := metav1.GetControllerOf(service); owner == nil || owner.Kind != "Sandbox" || owner.Name != name {
			return fmt.Errorf("owners %v", service.OwnerReferences)
		}
		return nil
	})
	return service
}

func (c *clients) awaitNoService(t testing.TB, ns, name string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.kube.CoreV1().Services(ns).Get(ctx, name, metav1.GetOptions{})
		return gone(err)
	})
}

// TestServicesOfSandboxes follows the Services of a pool, by what the template says
// that its set names first.
func TestServicesOfSandboxes(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	services := c.kube.CoreV1().Services(ns)
	c.makeTemplate(t, ns, "base", func(s *v1alpha1.SandboxTemplateSpec) { s.Template.Raw, s.Service = []byte(portsTemplate), new(false) })
	web := c.makeTemplate(t, ns, "web", func(s *v1alpha1.SandboxTemplateSpec) {
		s.Template, s.TemplateRef, s.Service = nil, &v1alpha1.SandboxTemplateRef{Name: "base"}, new(true)
	})
	c.makePool(t, ns, "web", 2)
	warm := c.unused(t, ns)
	if len(warm) != 2 {
		t.Fatalf("unused are %v", warm)
	}
	for _, name := range warm {
		c.awaitService(t, ns, name)
	}

	// A claimed sandbox keeps its Service, through a pause as well, until its spec
	// says otherwise. Only the word "unset" changes nothing.
	claimed := c.claim(t, ns, builders.Claim("mine", 1)).Status.Sandboxes[0].Name
	made := c.awaitService(t, ns, claimed)
	c.patchSandbox(t, ns, claimed, `{"spec":{"paused":true}}`)
	c.awaitNoPod(t, ns, claimed)
	c.patchSandbox(t, ns, claimed, `{"spec":{"paused":false,"service":null}}`)
	c.awaitSandbox(t, ns, claimed, isReady)
	if now := c.awaitService(t, ns, claimed); now.ResourceVersion != made.ResourceVersion {
		t.Errorf("the Service was written from version %s to %s", made.ResourceVersion, now.ResourceVersion)
	}
	c.patchSandbox(t, ns, claimed, `{"spec":{"service":false}}`)
	c.awaitNoService(t, ns, claimed)
	c.patchSandbox(t, ns, claimed, `{"spec":{"service":true}}`)
	again := c.awaitService(t, ns, claimed)

	// What a user changes is brought back, and what a user deletes is made again. Repeated
	// changes of one Service would be brought back with a delay.
	for i, drift := range []string{
		`{"spec":{"selector":{"a":"b"}}}`, `{"spec":{"ports":null}}`, `{"metadata":{"labels":null}}`, `{"metadata":{"labels":null},"spec":{"ports":null}}`,
		`{"metadata":{"ownerReferences":null},"spec":{"ports":null}}`,
		`{"spec":{"externalIPs":["192.0.2.1"],"sessionAffinity":"ClientIP"}}`,
		`{"spec":{"type":"ExternalName","externalName":"example.com","clusterIP":null,"clusterIPs":null}}`,
	} {
		name := fmt.Sprintf("drift-%d", i)
		c.makeSandbox(t, ns, name, portsTemplate, func(s *v1alpha1.Sandbox) { s.Spec.Service = new(true) })
		c.awaitService(t, ns, name)
		if _, err := services.Patch(t.Context(), name, types.MergePatchType, []byte(drift), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		c.awaitService(t, ns, name)
		if err := c.Sandboxes(ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := services.Delete(t.Context(), again.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitService(t, ns, claimed)

	// One that lost its labels, or its owner, is not left behind.
	for _, lost := range []string{`{"metadata":{"labels":null}}`, `{"metadata":{"ownerReferences":null}}`} {
		if _, err := services.Patch(t.Context(), claimed, types.MergePatchType, []byte(lost), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		c.patchSandbox(t, ns, claimed, `{"spec":{"service":false}}`)
		c.awaitNoService(t, ns, claimed)
		c.patchSandbox(t, ns, claimed, `{"spec":{"service":true}}`)
		c.awaitService(t, ns, claimed)
	}
	if err := c.Sandboxes(ns).Delete(t.Context(), claimed, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitNoService(t, ns, claimed)

	// What the template says of services is part of the revision.
	c.patchTemplate(t, web, `{"spec":{"service":null}}`)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		list, err := c.Sandboxes(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Spec.Service != nil {
				return fmt.Errorf("sandbox %s has a service still", list.Items[i].Name)
			}
		}
		left, err := services.List(ctx, metav1.ListOptions{})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d Services", len(left.Items))
		}
		return err
	})
	expect.FullPool(t, c, ns, "pool", 2)
}

// wantNoService checks that a write was refused because of the Service it asks for.
func wantNoService(t testing.TB, err error) {
	t.Helper()
	if details, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid); !apierrors.IsInvalid(err) || !ok || details.Field != "spec.service" {
		t.Errorf("a Service that no sandbox of this name can have is answered %v", err)
	}
}

// TestInvalidServices: a Service that cannot be created is reported, or refused if the name of
// the sandbox is not valid for a Service. Services of others are not touched.
func TestInvalidServices(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "taken", Labels: map[string]string{v1alpha1.LabelCreatedBy: v1alpha1.CreatedBySandbox}}}
	foreign.Spec.ClusterIP = corev1.ClusterIPNone
	foreign, err := c.kube.CoreV1().Services(ns).Create(t.Context(), foreign, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	serves := func(s *v1alpha1.Sandbox) {
		s.Spec.Service = new(true)
		s.Spec.Template = &runtime.RawExtension{Raw: []byte(portsTemplate)}
	}
	taken := c.makeSandbox(t, ns, "taken", "", serves)
	c.awaitEvent(t, taken, corev1.EventTypeWarning, "ServiceNameTaken")
	c.makeSandbox(t, ns, "a.b", portsTemplate)
	c.awaitSandbox(t, ns, "a.b", isReady)
	_, err = c.Sandboxes(ns).Patch(t.Context(), "a.b", types.MergePatchType, []byte(`{"spec":{"service":true}}`), metav1.PatchOptions{})
	wantNoService(t, err)
	dotted := builders.Sandbox("c.d")
	serves(dotted)
	_, err = c.Sandboxes(ns).Create(t.Context(), dotted, metav1.CreateOptions{})
	wantNoService(t, err)
	c.patchSandbox(t, ns, "taken", `{"spec":{"service":false}}`)

	// When the other one is gone, the sandbox gets its own.
	c.makeSandbox(t, ns, "fine", "", serves)
	c.awaitService(t, ns, "fine") // later than the removal that must not be
	if got, err := c.kube.CoreV1().Services(ns).Get(t.Context(), "taken", metav1.GetOptions{}); err != nil || got.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the user's Service became %+v, %v", got, err)
	}
	if err := c.kube.CoreV1().Services(ns).Delete(t.Context(), "taken", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.patchSandbox(t, ns, "taken", `{"spec":{"service":true}}`)
	c.awaitService(t, ns, "taken")
}
