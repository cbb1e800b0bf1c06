// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	agentsv1alpha1 "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

// inProtobuf returns a client that sends and accepts protobuf alone.
func inProtobuf(t *testing.T, s *testutil.Server) agentsv1alpha1.AgentsV1alpha1Interface {
	t.Helper()
	config := rest.CopyConfig(s.Config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.AgentsV1alpha1()
}

// sameObjects compares objects as a client of JSON and one of protobuf have read them.
func sameObjects(t *testing.T, what string, js, protobuf any, err ...error) {
	t.Helper()
	for _, err := range err {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	options := cmp.Options{cmpopts.IgnoreTypes(metav1.TypeMeta{}), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(js, protobuf, options); diff != "" {
		t.Errorf("%s (-JSON +protobuf):\n%s", what, diff)
	}
}

// TestProtobufClients: clients of JSON and of protobuf read the same objects, whichever of them wrote, in
// lists and watches too, and neither writes what has not changed.
func TestProtobufClients(t *testing.T) {
	t.Parallel()
	server := testutil.Start(t)
	js, protobuf := server.Client.AgentsV1alpha1(), inProtobuf(t, server)
	ctx := t.Context()
	const text = `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"main","image":"busybox","command":["sh","-c","a && b < c"],"fromTheFuture":1.50}]}}`

	watches := map[string]watch.Interface{}
	for name, client := range map[string]agentsv1alpha1.AgentsV1alpha1Interface{"JSON": js, "protobuf": protobuf} {
		events, err := client.SandboxTemplates("default").Watch(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer events.Stop()
		watches[name] = events
	}
	sameEvent := func() {
		t.Helper()
		inJSON, inProtobuf := <-watches["JSON"].ResultChan(), <-watches["protobuf"].ResultChan()
		sameObjects(t, "event", inJSON, inProtobuf)
	}

	for name, client := range map[string]agentsv1alpha1.AgentsV1alpha1Interface{"by-json": js, "by-protobuf": protobuf} {
		template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
		template.Spec.Template = &runtime.RawExtension{Raw: []byte(text)}
		template.Spec.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{}
		made, err := client.SandboxTemplates("default").Create(ctx, template, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sameEvent()
		inJSON, err1 := js.SandboxTemplates("default").Get(ctx, name, metav1.GetOptions{})
		inProtobuf, err2 := protobuf.SandboxTemplates("default").Get(ctx, name, metav1.GetOptions{})
		sameObjects(t, name, inJSON, inProtobuf, err1, err2)

		for _, client := range []agentsv1alpha1.AgentsV1alpha1Interface{js, protobuf} {
			for _, read := range []*v1alpha1.SandboxTemplate{inJSON, inProtobuf} {
				same, err := client.SandboxTemplates("default").Update(ctx, read, metav1.UpdateOptions{})
				if err != nil || same.ResourceVersion != made.ResourceVersion {
					t.Errorf("%s: an update without a change wrote: %v, %v", name, same, err)
				}
			}
		}
		changed := inProtobuf.DeepCopy()
		changed.Labels = map[string]string{"changed": "yes"}
		if _, err := client.SandboxTemplates("default").Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		sameEvent()
	}
	inJSON, err1 := js.SandboxTemplates("default").List(ctx, metav1.ListOptions{})
	inProtobuf, err2 := protobuf.SandboxTemplates("default").List(ctx, metav1.ListOptions{})
	sameObjects(t, "list", inJSON, inProtobuf, err1, err2)
	if len(inProtobuf.Items) != 2 || inProtobuf.Items[0].Labels["changed"] != "yes" {
		t.Errorf("listed %v", inProtobuf.Items)
	}
	page, err := protobuf.SandboxTemplates("default").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(page.Items) != 1 || page.Continue == "" {
		t.Errorf("first page: %v, %v", page, err)
	}
	if err := protobuf.SandboxTemplates("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	sameEvent()
	sameEvent()

	testClaimsInProtobuf(ctx, t, server, protobuf)
}

// testClaimsInProtobuf claims, and uses the subresources.
func testClaimsInProtobuf(ctx context.Context, t *testing.T, server *testutil.Server, protobuf agentsv1alpha1.AgentsV1alpha1Interface) {
	t.Helper()
	js := server.Client.AgentsV1alpha1()
	server.Stock(t, server.Set(t, "default", "pool", 2), 0, 2)
	claim, err := protobuf.SandboxClaims("default").Create(ctx, builders.Claim("pool", 2), metav1.CreateOptions{})
	if err != nil || len(claim.Status.Sandboxes) != 2 {
		t.Fatalf("claimed %v, %v", claim, err)
	}
	inJSON, err1 := js.SandboxClaims("default").Get(ctx, claim.Name, metav1.GetOptions{})
	sameObjects(t, "claim", inJSON, claim, err1)
	one, err1 := js.Sandboxes("default").Get(ctx, claim.Status.Sandboxes[0].Name, metav1.GetOptions{})
	same, err2 := protobuf.Sandboxes("default").Get(ctx, claim.Status.Sandboxes[0].Name, metav1.GetOptions{})
	sameObjects(t, "sandbox", one, same, err1, err2)
	released, err := protobuf.SandboxClaims("default").Release(ctx, claim.Name,
		&v1alpha1.SandboxClaimRelease{Spec: v1alpha1.SandboxClaimReleaseSpec{SandboxNames: []string{one.Name}}}, metav1.CreateOptions{})
	if err != nil || len(released.Status.Released) != 1 {
		t.Errorf("released %v, %v", released, err)
	}
	scale, err := protobuf.SandboxSets("default").GetScale(ctx, "pool", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scale.Spec.Replicas = 7
	if _, err := protobuf.SandboxSets("default").UpdateScale(ctx, "pool", scale, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	set, err := js.SandboxSets("default").Get(ctx, "pool", metav1.GetOptions{})
	if err != nil || set.Spec.Replicas == nil || *set.Spec.Replicas != 7 {
		t.Errorf("scaled to %v, %v", set, err)
	}
}
