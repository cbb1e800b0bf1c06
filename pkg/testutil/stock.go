// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
	"github.com/sandlot-io/sandlot/pkg/store/format"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

// template is the pod template of every set that Stock makes.
const template = `{"metadata":{"labels":{"app":"test"}},"spec":{"containers":[{"image":"busybox","name":"main"}]}}`

// inlineRevision is that of the sandboxes that Stock makes of sets with a template of
// their own.
const inlineRevision = "abc"

// Set makes a SandboxSet. No controller runs beside the test's server: the set
// has the sandboxes that Stock gives it, and no others.
func (s *Server) Set(t testing.TB, namespace, name string, replicas int32) *v1alpha1.SandboxSet {
	t.Helper()
	set := builders.Set(name, replicas)
	set.Spec.Template.Raw = []byte(template)
	set, err := s.Client.AgentsV1alpha1().SandboxSets(namespace).Create(t.Context(), set, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("making SandboxSet %s: %v", name, err)
	}
	return set
}

// Template makes a SandboxTemplate with the pod template of every other set.
func (s *Server) Template(t testing.TB, namespace, name string) *v1alpha1.SandboxTemplate {
	t.Helper()
	made := builders.Template(name)
	made.Spec.Template.Raw = []byte(template)
	made, err := s.Client.AgentsV1alpha1().SandboxTemplates(namespace).Create(t.Context(), made, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("making SandboxTemplate %s: %v", name, err)
	}
	return made
}

// SetOf makes a SandboxSet that refers to a template, with a patch if that is not
// empty, and, as a controller does, the SandboxTemplate that holds its revision. That is
// in the status of what it returns, for Stock, and not in what is stored.
func (s *Server) SetOf(t testing.TB, template *v1alpha1.SandboxTemplate, name, patch string, replicas int32) *v1alpha1.SandboxSet {
	t.Helper()
	set := builders.Set(name, replicas)
	set.Spec.Template, set.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: template.Name}
	resolved := podtemplate.Inline(template.Spec.Template)
	if patch != "" {
		set.Spec.Patch = &runtime.RawExtension{Raw: []byte(patch)}
		patched, err := podtemplate.ApplyPatch(template.Spec.Template, set.Spec.Patch)
		if err != nil {
			t.Fatalf("patching for SandboxSet %s: %v", name, err)
		}
		resolved = podtemplate.Inline(patched)
	}
	agents := s.Client.AgentsV1alpha1()
	set, err := agents.SandboxSets(template.Namespace).Create(t.Context(), set, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("making SandboxSet %s: %v", name, err)
	}
	set.Status.UpdateRevision, err = podtemplate.SetRevision(set, resolved)
	if err != nil {
		t.Fatalf("the revision of SandboxSet %s: %v", name, err)
	}
	held := podtemplate.NewHolder(set, set.Status.UpdateRevision, resolved)
	if _, err := agents.SandboxTemplates(template.Namespace).Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatalf("making SandboxTemplate %s: %v", held.Name, err)
	}
	return set
}

// Stock puts n available sandboxes of the set straight into etcd, as they look
// once a controller has made them and they are ready, and returns their names.
// first numbers the first of them.
func (s *Server) Stock(t testing.TB, set *v1alpha1.SandboxSet, first, n int) []string {
	t.Helper()
	return s.StockWith(t, set, first, n, func(int, *v1alpha1.Sandbox) {})
}

// StockWith is Stock of sandboxes that change makes others, by their numbers.
func (s *Server) StockWith(t testing.TB, set *v1alpha1.SandboxSet, first, n int, change func(i int, sb *v1alpha1.Sandbox)) []string {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: s.EtcdServers})
	if err != nil {
		t.Fatalf("connecting to etcd: %v", err)
	}
	defer func() { _ = client.Close() }()
	var stored apiserver.StorageFormat // as the server stores objects
	if record, _, err := format.Read(t.Context(), client, options.EtcdPrefix, "test"); err != nil {
		t.Fatal(err)
	} else if record.Format >= format.Protobuf {
		stored.UseProtobuf()
	}
	resource := etcdtxn.NewResource(&storagebackend.ConfigForResource{
		Config: storagebackend.Config{
			Prefix: options.EtcdPrefix,
			Codec:  stored.Codec(),
		},
		GroupResource: v1alpha1.Resource("sandboxes"),
	}, v1alpha1.GroupName+"/sandboxes")
	var names []string
	for begin := 0; begin < n; begin += etcdtxn.MaxOps {
		txn := etcdtxn.NewClient(client).Txn()
		for i := begin; i < min(n, begin+etcdtxn.MaxOps); i++ {
			sb := AvailableSandbox(set, first+i)
			change(first+i, sb)
			names = append(names, sb.Name)
			if err := txn.Create(t.Context(), resource, resource.Key(sb.Namespace, sb.Name), sb); err != nil {
				t.Fatalf("stocking: %v", err)
			}
		}
		if err := txn.Commit(context.WithoutCancel(t.Context())); err != nil {
			t.Fatalf("stocking: %v", err)
		}
	}
	return names
}

// AvailableSandbox is the i-th sandbox of a set, ready to be claimed.
func AvailableSandbox(set *v1alpha1.SandboxSet, i int) *v1alpha1.Sandbox {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	revision := inlineRevision
	source := v1alpha1.EmbeddedSandboxTemplate{Template: set.Spec.Template.DeepCopy()}
	if source.Template == nil {
		revision = set.Status.UpdateRevision
		source.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: podtemplate.RevisionName(set, revision)}
	}
	name := fmt.Sprintf("%s-%06d", set.Name, i)
	sb := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: name, UID: types.UID("uid-" + name), Generation: 1, CreationTimestamp: now,
			Labels: map[string]string{
				v1alpha1.LabelSandboxPool:     set.Name,
				v1alpha1.LabelSandboxTemplate: podtemplate.TemplateOf(set),
				v1alpha1.LabelSandboxClaimed:  v1alpha1.ClaimedFalse,
				v1alpha1.LabelTemplateHash:    revision,
				"app":                         "test",
			},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("SandboxSet")),
			},
		},
		Spec:   v1alpha1.SandboxSpec{EmbeddedSandboxTemplate: source, Runtimes: set.Spec.Runtimes},
		Status: ReadyStatus(i, now.Time),
	}
	sb.Status.PodInfo.PodUID = sb.UID // it has no Pod, as simulated sandboxes
	return sb
}

// ReadyStatus is the status of a sandbox that runs and is ready since a time. It does not have the
// UID of a pod, without which no secret and no connection is sent to a sandbox.
func ReadyStatus(i int, since time.Time) v1alpha1.SandboxStatus {
	ip := fmt.Sprintf("127.%d.%d.%d", 1+i>>16&127, i>>8&255, i&255)
	return v1alpha1.SandboxStatus{
		ObservedGeneration: 1,
		Phase:              v1alpha1.SandboxRunning,
		NodeName:           "node",
		SandboxIP:          ip,
		PodInfo:            v1alpha1.PodInfo{PodIP: ip, NodeName: "node"},
		Conditions: []metav1.Condition{{
			Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPodReady,
			LastTransitionTime: metav1.NewTime(since),
		}},
	}
}
