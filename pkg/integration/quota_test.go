// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/quota"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const countSandboxes corev1.ResourceName = "count/sandboxes.agents.kruise.io"

// withQuota limits the sandboxes of the namespace, as with a cluster that has a
// ResourceQuota, and returns that cluster.
func withQuota(t *testing.T, limit int64) (testutil.Option, kubernetes.Interface) {
	t.Helper()
	return withQuotaOf(t, countSandboxes, limit)
}

// withQuotaOf does so for another resource.
func withQuotaOf(t *testing.T, counted corev1.ResourceName, limit int64) (testutil.Option, kubernetes.Interface) {
	t.Helper()
	hard := corev1.ResourceList{counted: *resource.NewQuantity(limit, resource.DecimalSI)}
	cluster := fake.NewClientset(&corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "limit", ResourceVersion: "1"},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard},
		Status:     corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{counted: resource.MustParse("0")}},
	})
	var version atomic.Int64
	cluster.PrependReactor("update", "resourcequotas", func(action clienttesting.Action) (bool, runtime.Object, error) {
		update, ok := action.(clienttesting.UpdateAction)
		if !ok {
			return false, nil, nil
		}
		if charged, ok := update.GetObject().(*corev1.ResourceQuota); ok { // by which the plugin knows what is newer
			charged.ResourceVersion = strconv.FormatInt(version.Add(1)+1, 10)
		}
		return false, nil, nil
	})
	o := genericoptions.NewAdmissionOptions()
	quota.AddTo(o)
	plugins := []string{resourcequota.PluginName}
	config, err := admission.ReadAdmissionConfiguration(plugins, "", runtime.NewScheme())
	if err != nil {
		t.Fatal(err)
	}
	shared := informers.NewSharedInformerFactory(cluster, 0)
	initializers := admission.PluginInitializers{
		initializer.New(cluster, nil, shared, nil, nil, nil, t.Context().Done(), nil), quota.Initializer(),
	}
	chain, err := o.Plugins.NewFromPlugins(plugins, config, initializers, o.Decorators)
	if err != nil {
		t.Fatal(err)
	}
	shared.Start(t.Context().Done())
	shared.WaitForCacheSync(t.Context().Done())
	return testutil.WithConfig(func(c *apiserver.Config) { c.GenericConfig.AdmissionControl = chain }), cluster
}

// A claim may have as many sandboxes made as its namespace's quota has room for, and is
// charged for them once.
func TestQuotaForExactlyWhatAClaimMakes(t *testing.T) {
	quota, cluster := withQuota(t, 2)
	s, set := stocked(t, 0, withSyncWindow(time.Millisecond), quota)
	if _, err := s.CreateOnce(t.Context(), namespace, testutil.Claim(set, "three", 3, nil)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota") {
		t.Errorf("a claim for one more than there is room for: %v", err)
	}
	create(t, s, testutil.Claim(set, "cold", 2, timeout(expect.Patience)))
	for i, sb := range freshOf(t, s, 2) {
		setStatus(t, s, &sb, testutil.ReadyStatus(i, time.Now()))
	}
	s.AwaitClaim(t, namespace, "cold", testutil.Completed)
	charged, err := cluster.CoreV1().ResourceQuotas(namespace).Get(t.Context(), "limit", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if used := charged.Status.Used[countSandboxes]; used.Value() != 2 {
		t.Errorf("charged for %s, want 2", used.String())
	}
	if _, err := s.CreateOnce(t.Context(), namespace, testutil.Claim(set, "another", 1, nil)); !apierrors.IsForbidden(err) {
		t.Errorf("a claim beyond the quota: %v", err)
	}
	checkInvariants(t, s)
}

// What cannot be stored is not charged: a name that is taken, and a claim that is too
// large. A client that tries again would use up the quota otherwise.
func TestQuotaIsNotChargedForClaimsThatCannotBe(t *testing.T) {
	const countClaims corev1.ResourceName = "count/sandboxclaims.agents.kruise.io"
	quota, cluster := withQuotaOf(t, countClaims, 3)
	s, set := stocked(t, 2, quota)
	one := testutil.Claim(set, "one", 1, nil)
	create(t, s, one)
	for range 4 {
		if _, err := s.CreateOnce(t.Context(), namespace, one); !apierrors.IsAlreadyExists(err) {
			t.Errorf("a name that is taken: %v", err)
		}
		_, err := s.CreateOnce(t.Context(), namespace, annotated(set, "large", 400, 255<<10))
		mustBeInvalid(t, "too large", err, "spec.annotations")
		_, err = s.CreateOnce(t.Context(), namespace, testutil.Claim(set, "fresh", 5000, func(c *v1alpha1.SandboxClaim) {
			c.Spec.WarmPool = v1alpha1.WarmPoolNone
		}))
		mustBeInvalid(t, "too many fresh ones", err, "spec.replicas")
	}
	charged, err := cluster.CoreV1().ResourceQuotas(namespace).Get(t.Context(), "limit", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if used := charged.Status.Used[countClaims]; used.Value() != 1 {
		t.Errorf("charged for %s claims, want 1", used.String())
	}

	// A name is free again at once, whatever a watch cache still has.
	if err := claims(s).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, s, one)
}
