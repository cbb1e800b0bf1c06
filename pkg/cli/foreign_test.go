// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
	"github.com/sandlot-io/sandlot/pkg/client/fake"
)

// A name that others may have given to theirs does not lead to a sandbox of theirs.
func TestTarget(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"}}
	claim := testClaim("mine", "pool", 1)
	claim.Status.Sandboxes = []v1alpha1.ClaimedSandbox{{Name: "theirs"}}
	cases := map[string]struct {
		arg       string
		objects   []runtime.Object
		forbidden string // resources that may not be read
		pods      []runtime.Object
		want      string
		wantErr   string
	}{
		"a claim":                             {arg: "mine", objects: []runtime.Object{claim}, want: "theirs"},
		"a sandbox":                           {arg: "mine", objects: []runtime.Object{testSandbox("mine", "x")}, want: "mine"},
		"both":                                {arg: "mine", objects: []runtime.Object{claim, testSandbox("mine", "x")}, wantErr: "write sbc/mine or sbx/mine"},
		"both, the claim is meant":            {arg: "sbc/mine", objects: []runtime.Object{claim, testSandbox("mine", "x")}, want: "theirs"},
		"both, the sandbox is meant":          {arg: "sbx/mine", objects: []runtime.Object{claim, testSandbox("mine", "x")}, want: "mine"},
		"a claim as kubectl prints it":        {arg: "sandboxclaim.agents.kruise.io/mine", objects: []runtime.Object{claim, testSandbox("mine", "x")}, want: "theirs"},
		"a sandbox of agent-sandbox":          {arg: "sandbox.agents.x-k8s.io/mine", objects: []runtime.Object{claim, testSandbox("mine", "x")}, want: "mine"},
		"of another group":                    {arg: "sandboxclaim.example.com/mine", objects: []runtime.Object{claim}, wantErr: "neither a sandboxclaim"},
		"a claim, and sandboxes unread":       {arg: "mine", objects: []runtime.Object{claim}, forbidden: "sandboxes", want: "theirs"},
		"a claim and a pod, sandboxes unread": {arg: "mine", objects: []runtime.Object{claim}, forbidden: "sandboxes", pods: []runtime.Object{pod}, wantErr: "write sbc/mine or sbx/mine"},
		"a pod alone":                         {arg: "mine", pods: []runtime.Object{pod}, wantErr: "neither a sandboxclaim nor a sandbox"},
		"a pod alone, claims unread":          {arg: "mine", pods: []runtime.Object{pod}, forbidden: "sandboxclaims", wantErr: "neither a sandboxclaim nor a sandbox"},
		"a sandbox, claims unread":            {arg: "mine", objects: []runtime.Object{testSandbox("mine", "x")}, forbidden: "sandboxclaims", want: "mine"},
		"a pod alone, nothing is read":        {arg: "mine", pods: []runtime.Object{pod}, forbidden: "sandboxclaims sandboxes", wantErr: "write sbx/mine"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			clients := fake.NewClientset(tc.objects...)
			for resource := range strings.FieldsSeq(tc.forbidden) {
				clients.PrependReactor("get", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(v1alpha1.Resource(resource), tc.arg, nil)
				})
			}
			s := &session{namespace: "ns", agents: clients.AgentsV1alpha1(), kube: kubefake.NewClientset(tc.pods...)}
			got, err := s.target(t.Context(), tc.arg)
			if got != tc.want || (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("target is %q, %v; want %q, %q", got, err, tc.want, tc.wantErr)
			}
		})
	}
}

// A claim of which it is not known whether it is stored is deleted only if it has the key.
func TestRemoveKnowsItsOwn(t *testing.T) {
	for key, left := range map[string]bool{"mine": false, "theirs": true} {
		claim := testClaim("run", "pool", 1)
		claim.Annotations = map[string]string{client.AnnotationKey: key}
		agents := fake.NewClientset(claim).AgentsV1alpha1()
		o := &claimOptions{connection: newConnection(genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard})}
		if err := o.remove(t.Context(), agents, testClaim("run", "pool", 1), nil, "mine"); err != nil {
			t.Error(err)
		}
		if _, err := agents.SandboxClaims("ns").Get(t.Context(), "run", metav1.GetOptions{}); apierrors.IsNotFound(err) == left {
			t.Errorf("with the key of %s: %v", key, err)
		}
	}
}

// A long name of a user is cut on sandboxes.
func TestHoldingsOfLongNames(t *testing.T) {
	user := strings.Repeat("u", 300)
	mine, theirs := testSandbox("mine", "gone"), testSandbox("theirs", "gone")
	mine.Labels[v1alpha1.LabelClaimedBy] = v1alpha1.ClaimedByLabel(user)
	theirs.Labels[v1alpha1.LabelClaimedBy] = v1alpha1.ClaimedByLabel(user + "x")
	for _, sandbox := range []*v1alpha1.Sandbox{mine, theirs} {
		sandbox.Annotations[v1alpha1.AnnotationClaimedBy] = user[:256]
	}
	held := newHoldings(nil, []*v1alpha1.Sandbox{mine, theirs}).of(user)
	if len(held.outlived) != 1 || held.outlived[0].Name != "mine" {
		t.Errorf("holds %d sandboxes, want the one", len(held.outlived))
	}
}

// What the user is asked to paste reaches the same cluster.
func TestElsewhere(t *testing.T) {
	flags := genericclioptions.NewConfigFlags(true)
	c := &connection{flags: flags}
	if got := c.elsewhere(); got != "" {
		t.Errorf("without flags it is %q", got)
	}
	flags.Namespace, flags.Context, flags.KubeConfig, flags.APIServer = new("ns"), new("prod; rm x"), new("/it's here"), new("https://h:1")
	want := ` -n ns --kubeconfig '/it'\''s here' --context 'prod; rm x' --server https://h:1`
	if got := c.elsewhere(); got != want {
		t.Errorf("it is %s, want %s", got, want)
	}
}
