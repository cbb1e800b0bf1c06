// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestMetadataOnly reads and watches our kinds as the garbage collector and the
// quota controller do: only their metadata, whatever they are.
func TestMetadataOnly(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	resource := client.Resource(v1alpha1.SchemeGroupVersion.WithResource("sandboxes")).Namespace(ns)
	before, err := resource.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := resource.Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	expect.FilledPool(t, c, ns, 1)
	select {
	case event := <-watcher.ResultChan():
		seen, ok := event.Object.(*metav1.PartialObjectMetadata)
		if event.Type != watch.Added || !ok || len(seen.OwnerReferences) != 1 || seen.OwnerReferences[0].Name != "pool" {
			t.Errorf("the watch says %s %+v", event.Type, event.Object)
		}
	case <-time.After(expect.Patience):
		t.Fatal("the watch says nothing")
	}
	after, err := resource.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(after.Items) != 1 || after.Items[0].OwnerReferences[0].Name != "pool" {
		t.Errorf("the list says %+v, %v", after, err)
	}
}

// TestWait waits with kubectl for what becomes of claims, sets and sandboxes.
func TestWait(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	const timeout = "--timeout=170s"
	kubectl(t, ns, builders.ClaimYAML, "create", "-f", "-") // before there is a pool
	kubectl(t, ns, builders.PoolYAML, "apply", "-f", "-")
	kubectl(t, ns, "", "wait", "--for=condition=Completed", "sbc/claim", timeout)
	kubectl(t, ns, "", "wait", "--for=condition=Ready", "sandboxclaim/claim", timeout)
	kubectl(t, ns, "", "wait", "--for=jsonpath={.status.phase}=Completed", "sbc/claim", timeout)
	kubectl(t, ns, "", "wait", "--for=jsonpath={.status.availableReplicas}=3", "sbs/pool", timeout)
	kubectl(t, ns, "", "wait", "--for=condition=Ready", "sandboxes", "--all", timeout)

	claimed := kubectl(t, ns, "", "get", "sbc/claim", "-o", "jsonpath={.status.sandboxes[0].name}")
	kubectl(t, ns, "", "wait", "--for=condition=Ready", "sbx/"+claimed, timeout)
	// What kubectl deletes it waits for; other clients wait too.
	done := make(chan error, 1)
	go func() {
		_, err := tryKubectl(t, "", ns, "", "wait", "--for=delete", "sbx/"+claimed, timeout)
		done <- err
	}()
	kubectl(t, ns, "", "delete", "sandboxes.agents.kruise.io", claimed, timeout)
	if err := <-done; err != nil {
		t.Error(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.kube.CoreV1().Pods(ns).Get(ctx, claimed, metav1.GetOptions{})
		return gone(err)
	})
}

// TestAggregatedOpenAPI reads the schema of our kinds from kube-apiserver, in both
// versions, without which kubectl could not validate what it sends.
func TestAggregatedOpenAPI(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.Eventually(t.Context(), t, func(context.Context) error {
		document, err := c.kube.Discovery().OpenAPISchema()
		if err != nil {
			return err
		}
		for _, definition := range document.GetDefinitions().GetAdditionalProperties() {
			if strings.HasSuffix(definition.GetName(), ".SandboxClaimSpec") {
				return nil
			}
		}
		return fmt.Errorf("claims are not among the %d definitions", len(document.GetDefinitions().GetAdditionalProperties()))
	})
	expect.Eventually(t.Context(), t, func(context.Context) error {
		paths, err := c.kube.Discovery().OpenAPIV3().Paths()
		if err != nil {
			return err
		}
		path, ok := paths["apis/agents.kruise.io/v1alpha1"]
		if !ok {
			return fmt.Errorf("the group is not among %d paths", len(paths))
		}
		schema, err := path.Schema("application/json")
		if err != nil {
			return err
		}
		if !strings.Contains(string(schema), "SandboxClaimSpec") {
			return fmt.Errorf("claims are not in the schema of %d bytes", len(schema))
		}
		return nil
	})
	misspelt := strings.Replace(builders.ClaimYAML, "templateName", "templateNam", 1)
	_, err := tryKubectl(t, "", ns, misspelt, "create", "--validate=strict", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), `unknown field "spec.templateNam"`) {
		t.Errorf("a misspelt field: %v", err)
	}
	out := kubectl(t, ns, "", "explain", "sandboxclaim.spec.reclaimPolicy", "--api-version=agents.kruise.io/v1alpha1")
	if !strings.Contains(out, "Retain") {
		t.Errorf("kubectl explain says: %s", out)
	}
}
