// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const (
	// mounts is a template whose container mounts the volumes data and more.
	mounts = `{"spec":{"containers":[{"env":[{"name":"MODE","value":"a"}],"image":"busybox","name":"main","volumeMounts":[` +
		`{"mountPath":"/data","name":"data"},{"mountPath":"/more","name":"more"}]}],"volumes":[{"emptyDir":{},"name":"more"}]}}`
	dataVolume = `{"metadata":{"name":"data"},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`
	moreVolume = `{"metadata":{"name":"more"},"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`
	// secret is in no message.
	secret = "hush-hush"
)

// injectable is a template with the volume data, and the policy that it has for
// both, variables and volumes.
func injectable(t *testing.T, s *testutil.Server, name string, policy v1alpha1.InjectionPolicy) *v1alpha1.SandboxTemplate {
	t.Helper()
	made, err := s.Client.AgentsV1alpha1().SandboxTemplates(namespace).Create(t.Context(), &v1alpha1.SandboxTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.SandboxTemplateSpec{
			EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
				Template:             &runtime.RawExtension{Raw: []byte(mounts)},
				VolumeClaimTemplates: []runtime.RawExtension{{Raw: []byte(dataVolume)}},
			},
			EnvVarsInjectionPolicy: policy, VolumeClaimTemplatesPolicy: policy,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// withEnv adds variables, name and container in turn, to a claim.
func withEnv(places ...string) func(*v1alpha1.SandboxClaim) {
	return func(c *v1alpha1.SandboxClaim) {
		for pair := range slices.Chunk(places, 2) {
			c.Spec.Env = append(c.Spec.Env, v1alpha1.SandboxClaimEnvVar{Name: pair[0], Value: secret, ContainerName: pair[1]})
		}
	}
}

func withVolume(raw string) func(*v1alpha1.SandboxClaim) {
	return func(c *v1alpha1.SandboxClaim) {
		c.Spec.VolumeClaimTemplates = append(c.Spec.VolumeClaimTemplates, runtime.RawExtension{Raw: []byte(raw)})
	}
}

// volumeWith is the volume more with another field in its spec.
func volumeWith(field string) string {
	return strings.Replace(moreVolume, `"spec":{`, `"spec":{`+field+`,`, 1)
}

// TestInjection: what a claim adds is in the sandboxes that are made for it, and no
// warm one is taken.
func TestInjection(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	allowed, overrides := injectable(t, s, "python", v1alpha1.InjectionAllowed), injectable(t, s, "over", v1alpha1.InjectionOverrides)
	patched := s.SetOf(t, allowed, "spot", `{"metadata":{"labels":{"pool":"spot"}}}`, 1)
	s.Stock(t, patched, 0, 1)
	known(t, s, 1)
	env := func(values ...string) string {
		var all []string
		for pair := range slices.Chunk(values, 2) {
			all = append(all, fmt.Sprintf(`{"name":%q,"value":%q}`, pair[0], pair[1]))
		}
		return `"env":[` + strings.Join(all, ",") + "]"
	}
	tests := map[string]struct {
		claim   *v1alpha1.SandboxClaim
		env     string
		volumes []string
		pool    string
	}{
		"variables": {
			claim: ofTemplate("cold", allowed.Name, 1, withEnv("TOKEN", "", "RUN", "main")),
			env:   env("MODE", "a", "TOKEN", secret, "RUN", secret), volumes: []string{dataVolume},
		},
		"of a set, with its patch": {
			claim: testutil.Claim(patched, "cold", 1, withEnv("TOKEN", "")),
			env:   env("MODE", "a", "TOKEN", secret), pool: patched.Name, volumes: []string{dataVolume},
		},
		"a volume of its own": {
			claim: ofTemplate("cold", allowed.Name, 1, withVolume(moreVolume)),
			env:   env("MODE", "a"), volumes: []string{dataVolume, moreVolume},
		},
		"replaced": {
			claim: ofTemplate("cold", overrides.Name, 1, withEnv("MODE", ""), withVolume(strings.Replace(dataVolume, "1Gi", "7Gi", 1))),
			env:   env("MODE", secret), volumes: []string{strings.Replace(dataVolume, "1Gi", "7Gi", 1)},
		},
	}
	for name, tc := range tests {
		timeout(expect.Patience)(tc.claim)
		claim := create(t, s, tc.claim)
		if claim.Spec.WarmPool != v1alpha1.WarmPoolNone || claim.Status.ClaimedReplicas != 0 {
			t.Errorf("%s: answered warmPool %s, %+v", name, claim.Spec.WarmPool, claim.Status)
		}
		fresh := freshOf(t, s, 1)[0]
		if !strings.Contains(string(fresh.Spec.Template.Raw), tc.env) || fresh.Labels[v1alpha1.LabelSandboxPool] != tc.pool ||
			strings.Contains(string(fresh.Spec.Template.Raw), "spot") != (tc.pool != "") {
			t.Errorf("%s: labels %v, template %s, want %s in it", name, fresh.Labels, fresh.Spec.Template.Raw, tc.env)
		}
		var volumes []string
		for _, v := range fresh.Spec.VolumeClaimTemplates {
			volumes = append(volumes, string(v.Raw))
		}
		if diff := cmp.Diff(tc.volumes, volumes); diff != "" {
			t.Errorf("%s: volumes (-want +got):\n%s", name, diff)
		}
		setStatus(t, s, &fresh, testutil.ReadyStatus(200, time.Now()))
		if ended := s.AwaitClaim(t, namespace, "cold", testutil.Completed); ended.Status.ClaimedReplicas != 1 {
			t.Errorf("%s: ends with %+v", name, ended.Status)
		}
		if err := claims(s).Delete(t.Context(), "cold", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := sandboxes(s).Delete(t.Context(), fresh.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(t, s, ofTemplate("warm", allowed.Name, 1, fails)) // the one of the pool is still there
}

// TestInjectionRefused: with the field, in every way to create a claim, and nothing
// is stored.
func TestInjectionRefused(t *testing.T) {
	s := start(t)
	injectable(t, s, "closed", "")
	injectable(t, s, "python", v1alpha1.InjectionAllowed)
	inline := s.Set(t, namespace, "inline", 0)
	tests := map[string]struct {
		claim *v1alpha1.SandboxClaim
		want  string
	}{
		"no policy":         {ofTemplate("c", "closed", 1, withEnv("A", "")), "spec.env: Forbidden: not allowed by the template policy"},
		"no volumes either": {ofTemplate("c", "closed", 1, withVolume(moreVolume)), "spec.volumeClaimTemplates: Forbidden: not allowed by the template policy"},
		"inline template":   {testutil.Claim(inline, "c", 1, withEnv("A", "")), "spec.env: Forbidden: not allowed by the template policy"},
		"unknown container": {ofTemplate("c", "python", 1, withEnv("A", "", "A", "no")), `spec.env[1].containerName: Not found: "no"`},
		"taken variable":    {ofTemplate("c", "python", 1, withEnv("MODE", "")), "spec.env[0].name: Forbidden: MODE is a variable of the template"},
		"taken volume":      {ofTemplate("c", "python", 1, withVolume(dataVolume)), "spec.volumeClaimTemplates[0].metadata.name: Forbidden: data is a volume of the template"},
		"a volume for none": {ofTemplate("c", "python", 1, withVolume(strings.Replace(moreVolume, "more", "none", 1))), `spec.volumeClaimTemplates[0].metadata.name: Invalid value: "none": must be mounted`},
		"a pool":            {ofTemplate("c", "python", 1, withEnv("A", ""), fromPool("spot")), `spec.warmPool: Invalid value: "spot": must be none`},
		"the default pool":  {ofTemplate("c", "python", 1, withEnv("A", ""), fromPool(v1alpha1.WarmPoolDefault)), "spec.warmPool: Invalid value"},
		"and no fresh ones": {ofTemplate("c", "python", 1, withEnv("A", ""), waits), "spec.createOnNoStock: Invalid value"},
		"another storage class": {
			ofTemplate("c", "python", 1, withVolume(volumeWith(`"storageClassName":"gold"`))),
			`spec.volumeClaimTemplates[0].spec.storageClassName: Forbidden: StorageClass "gold"`,
		},
		"data of others": {
			ofTemplate("c", "python", 1, withVolume(volumeWith(`"dataSource":{"kind":"PersistentVolumeClaim","name":"payments"}`))),
			`spec.volumeClaimTemplates[0].spec.dataSource: Forbidden: kind "PersistentVolumeClaim"`,
		},
		"a malformed volume": {ofTemplate("c", "python", 1, withVolume(`{"metadata":{"name":"more"}}`)), "spec.volumeClaimTemplates[0].spec.resources.requests[storage]: Required"},
	}
	for name, tc := range tests {
		ways := map[string]func() error{
			"create": func() error {
				_, err := claims(s).Create(t.Context(), tc.claim.DeepCopy(), metav1.CreateOptions{})
				return err
			},
			"dry run": func() error {
				_, err := claims(s).Create(t.Context(), tc.claim.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				return err
			},
			"apply": func() error {
				_, err := apply(t, s, tc.claim, metav1.PatchOptions{})
				return err
			},
		}
		for way, try := range ways {
			err := try()
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("%s by %s: %v, want %s", name, way, err, tc.want)
			}
		}
	}
	all, err := claims(s).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) != 0 {
		t.Errorf("%d claims are stored, %v", len(all.Items), err)
	}
	made, err := sandboxes(s).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(made.Items) != 0 {
		t.Errorf("%d sandboxes are stored, %v", len(made.Items), err)
	}
}

// TestInjectionRejectedLater: a template that comes after the claim can end it.
func TestInjectionRejectedLater(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	tests := map[string]struct {
		change         func(*v1alpha1.SandboxClaim)
		policy         v1alpha1.InjectionPolicy
		reason, prefix string
	}{
		"source": {
			withVolume(volumeWith(`"volumeName":"pv"`)), v1alpha1.InjectionAllowed, v1alpha1.ReasonVolumeClaimTemplatesRejected,
			"volume claim templates rejected: spec.volumeClaimTemplates[0].spec.volumeName: Forbidden: ",
		},
		"env": {
			withEnv("A", ""), v1alpha1.InjectionDisallowed, v1alpha1.ReasonEnvVarsInjectionRejected,
			"environment variable injection rejected: spec.env: Forbidden: not allowed by the template policy",
		},
		"volumes": {
			withVolume(moreVolume), v1alpha1.InjectionDisallowed, v1alpha1.ReasonVolumeClaimTemplatesRejected,
			"volume claim templates rejected: spec.volumeClaimTemplates: Forbidden: not allowed by the template policy",
		},
	}
	for name, tc := range tests {
		create(t, s, ofTemplate(name, "t-"+name, 2, tc.change, timeout(expect.Patience)))
		injectable(t, s, "t-"+name, tc.policy)
		ended := s.AwaitClaim(t, namespace, name, testutil.Completed)
		done := meta.FindStatusCondition(ended.Status.Conditions, v1alpha1.ClaimConditionCompleted)
		if ended.Status.ClaimedReplicas != 0 || done == nil || done.Reason != tc.reason || isTrue(ended, v1alpha1.ClaimConditionTimedOut) ||
			!strings.HasPrefix(ended.Status.Message, tc.prefix) || done.Message != ended.Status.Message {
			t.Errorf("%s: ends with %+v", name, ended.Status)
		}
	}
	checkInvariants(t, s)
}

// TestInjectionRejectedWhileMaking: one that was allowed, and is not any more when
// another sandbox has to be made, ends with what it has.
func TestInjectionRejectedWhileMaking(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	template := injectable(t, s, "python", v1alpha1.InjectionAllowed)
	claim := create(t, s, ofTemplate("cold", "python", 2, withEnv("A", ""), timeout(expect.Patience), func(c *v1alpha1.SandboxClaim) {
		c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: expect.Patience}
	}))
	all := freshOf(t, s, 2)
	setStatus(t, s, &all[0], testutil.ReadyStatus(1, time.Now()))
	s.AwaitClaim(t, namespace, "cold", func(c *v1alpha1.SandboxClaim) string {
		if c.Status.ClaimedReplicas != 1 {
			return "does not count the first"
		}
		return ""
	})
	template.Spec.EnvVarsInjectionPolicy = v1alpha1.InjectionDisallowed
	if _, err := s.Client.AgentsV1alpha1().SandboxTemplates(namespace).Update(t.Context(), template, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	setStatus(t, s, &all[1], v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxFailed})
	ended := s.AwaitClaim(t, namespace, "cold", testutil.Completed)
	if done := meta.FindStatusCondition(ended.Status.Conditions, v1alpha1.ClaimConditionCompleted); done.Reason != v1alpha1.ReasonEnvVarsInjectionRejected ||
		ended.Status.ClaimedReplicas != 1 {
		t.Errorf("ends with %+v", ended.Status)
	}
	if its := owned(t, s, claim); len(its) != 1 || its[0].Name != all[0].Name {
		t.Errorf("holds %d sandboxes, want the one that is ready", len(its))
	}
	checkInvariants(t, s)
}

func TestInjectionIsImmutable(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	injectable(t, s, "python", v1alpha1.InjectionAllowed)
	create(t, s, ofTemplate("c", "python", 1, withEnv("A", ""), withVolume(moreVolume), timeout(expect.Patience)))
	for patch, want := range map[string]string{
		`{"spec":{"env":[{"name":"A","value":"hush-hush-2"}]}}`:  "spec.env: Forbidden: is immutable",
		`{"spec":{"env":null}}`:                                  "spec.env: Forbidden: is immutable",
		`{"spec":{"volumeClaimTemplates":[` + dataVolume + `]}}`: "spec.volumeClaimTemplates: Forbidden: is immutable",
		`{"spec":{"warmPool":"default"}}`:                        "spec.warmPool: Invalid value",
	} {
		_, err := claims(s).Patch(t.Context(), "c", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %s", patch, err, want)
		}
	}
	// The same in other words is no change.
	same := `{"spec":{"claimTimeout":"5m","volumeClaimTemplates":[{"spec":{"resources":{"requests":{"storage":"2Gi"}}},"metadata":{"name":"more"}}]}}`
	if _, err := claims(s).Patch(t.Context(), "c", types.MergePatchType, []byte(same), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}
