// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/google/go-cmp/cmp"

	"github.com/sandlot-io/sandlot/pkg/findings"
	"github.com/sandlot-io/sandlot/pkg/install/dryrunpolicy"
)

// told is what of findings a test compares: the level and a part of the message.
func expectFound(t *testing.T, name string, got []findings.Finding, want ...string) {
	t.Helper()
	var told []string
	for _, f := range got {
		if f.Level != findings.OK {
			told = append(told, string(f.Level)+": "+f.Message)
			if f.Action == "" {
				t.Errorf("%s: %q does not say what to do", name, f.Message)
			}
		}
	}
	if len(told) != len(want) {
		t.Errorf("%s: found %q, want %q", name, told, want)
		return
	}
	for i := range want {
		if !strings.HasPrefix(told[i], want[i]) {
			t.Errorf("%s: found %q, want %q", name, told[i], want[i])
		}
	}
}

func TestJudgeVersion(t *testing.T) {
	expectFound(t, "old", judgeVersion("v1.30.9"), "Error: Kubernetes is v1.30.9")
	expectFound(t, "oldest", judgeVersion("v1.31.0-eks-1234"), "Warning: Kubernetes is v1.31.0-eks-1234, and Sandlot is tested with 1.35 and newer")
	expectFound(t, "tested", judgeVersion("v1.35.0-gke.7"))
	expectFound(t, "new", judgeVersion("v1.40.2+k3s1"))
	expectFound(t, "unknown", judgeVersion("devel"), "Warning: ")
}

func TestJudgeAPIs(t *testing.T) {
	service := func(change func(*apiService)) *apiService {
		a := &apiService{}
		a.Name = "v1alpha1.agents.kruise.io"
		a.Spec.Service = &struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		}{"agents", "sandlot-apiserver"}
		a.Spec.CABundle = authority(t, time.Hour).pem
		a.Status.Conditions = []metav1.Condition{{Type: "Available", Status: metav1.ConditionTrue}}
		change(a)
		return a
	}
	for name, test := range map[string]struct {
		change func(*apiService)
		want   []string
	}{
		"well": {func(*apiService) {}, nil},
		"not available": {func(a *apiService) {
			a.Status.Conditions[0] = metav1.Condition{Type: "Available", Status: metav1.ConditionFalse, Reason: "MissingEndpoints", Message: "none"}
		}, []string{"Error: APIService v1alpha1.agents.kruise.io is not Available: MissingEndpoints: none"}},
		"not judged yet":    {func(a *apiService) { a.Status.Conditions = nil }, []string{"Error: APIService v1alpha1.agents.kruise.io is not Available"}},
		"no CA":             {func(a *apiService) { a.Spec.CABundle = nil }, []string{"Error: APIService v1alpha1.agents.kruise.io has a caBundle that is empty"}},
		"no certificate":    {func(a *apiService) { a.Spec.CABundle = []byte("x") }, []string{"Error: APIService v1alpha1.agents.kruise.io has a caBundle that cannot be read"}},
		"a CA that expired": {func(a *apiService) { a.Spec.CABundle = authority(t, -time.Hour).pem }, []string{"Error: APIService v1alpha1.agents.kruise.io has a caBundle that has expired"}},
		"any certificate":   {func(a *apiService) { a.Spec.InsecureSkipTLSVerify = true }, []string{"Error: APIService v1alpha1.agents.kruise.io has insecureSkipTLSVerify"}},
		"no answer":         {func(a *apiService) { a.answer = errors.New("x509") }, []string{"Error: a request by way of APIService v1alpha1.agents.kruise.io fails: x509"}},
	} {
		main := service(test.change)
		expectFound(t, name, judgeAPIs([]*apiService{main}, main, now), test.want...)
	}
	expectFound(t, "nothing", judgeAPIs(nil, nil, now), "Error: APIService v1alpha1.agents.kruise.io is not there")
	crds := service(func(a *apiService) { a.Spec.Service, a.Labels = nil, map[string]string{automanaged: "true"} })
	expectFound(t, "CRDs", judgeAPIs(nil, crds, now), "Error: APIService v1alpha1.agents.kruise.io leads to no Service, so kube-apiserver serves the group itself, from CustomResourceDefinitions")
}

func TestReadAPIService(t *testing.T) {
	service, err := readAPIService(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1alpha1.agents.kruise.io", "creationTimestamp": "2026-01-02T03:04:05Z"},
		"spec": map[string]any{
			"group": "agents.kruise.io", "version": "v1alpha1", "caBundle": "YQ==", "groupPriorityMinimum": int64(1000),
			"service": map[string]any{"namespace": "agents", "name": "sandlot-apiserver", "port": int64(443)},
		},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Available", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if service.Name != "v1alpha1.agents.kruise.io" || string(service.Spec.CABundle) != "a" || service.Spec.Service.Namespace != "agents" ||
		len(service.Status.Conditions) != 1 || service.Status.Conditions[0].Type != "Available" {
		t.Errorf("read %+v", service)
	}
}

func TestJudgeWorkloads(t *testing.T) {
	deployment := func(name, image string, wanted, ready int32) appsv1.Deployment {
		d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}}
		d.Spec.Replicas = &wanted
		d.Spec.Template.Spec.Containers = []corev1.Container{{Image: image}}
		d.Status = appsv1.DeploymentStatus{ReadyReplicas: ready, UpdatedReplicas: wanted}
		return d
	}
	manager := deployment(controllerManager, "ghcr.io/sandlot-io/sandlot-controller-manager:v0.3.0@sha256:abc", 2, 2)
	for name, test := range map[string]struct {
		server appsv1.Deployment
		want   []string
	}{
		"well":            {deployment(apiServer, "localhost:5000/sandlot-apiserver:v0.3.0", 2, 2), nil},
		"by digest":       {deployment(apiServer, "localhost:5000/sandlot-apiserver@sha256:abc", 2, 2), nil},
		"none ready":      {deployment(apiServer, "sandlot-apiserver:v0.3.0", 2, 0), []string{"Error: Deployment sandlot-apiserver: none of its 2 pods is ready"}},
		"one ready":       {deployment(apiServer, "sandlot-apiserver:v0.3.0", 2, 1), []string{"Warning: Deployment sandlot-apiserver: 1 of 2 pods are ready"}},
		"scaled down":     {deployment(apiServer, "sandlot-apiserver:v0.3.0", 0, 0), []string{"Error: Deployment sandlot-apiserver is scaled to 0"}},
		"another version": {deployment(apiServer, "sandlot-apiserver:v0.2.0", 2, 2), []string{"Warning: the programs are of several versions: sandlot-apiserver v0.2.0, sandlot-controller-manager v0.3.0"}},
		"somewhere else":  {deployment("other", "sandlot-apiserver:v0.2.0", 2, 2), []string{"Warning: namespace agents has no Deployment or StatefulSet sandlot-apiserver"}},
	} {
		expectFound(t, name, judgeWorkloads(workloadsOf([]appsv1.Deployment{test.server, manager}, nil), "agents"), test.want...)
	}
	rolling := deployment(apiServer, "sandlot-apiserver:v0.3.0", 2, 2)
	rolling.Status.UpdatedReplicas = 1
	expectFound(t, "rolling", judgeWorkloads(workloadsOf([]appsv1.Deployment{rolling, manager}, nil), "agents"), "Warning: Deployment sandlot-apiserver is being rolled out")
	embedded := appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: apiServer}, Status: appsv1.StatefulSetStatus{ReadyReplicas: 1, UpdatedReplicas: 1}}
	expectFound(t, "single", judgeWorkloads(workloadsOf([]appsv1.Deployment{manager}, []appsv1.StatefulSet{embedded}), "agents"))
}

func TestJudgeLease(t *testing.T) {
	held := func(ago time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("a"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: now.Add(-ago)},
		}}
	}
	judge := func(name string, lease *coordinationv1.Lease, want ...string) {
		t.Helper()
		expectFound(t, name, controllers.judge(lease, "agents", now), want...)
	}
	judge("held", held(time.Second))
	judge("about to be another's", held(time.Minute))
	judge("stale", held(2*time.Minute), "Error: Lease agents/sandlot-controller-manager was renewed 2m0s ago")
	judge("given back", &coordinationv1.Lease{}, "Error: Lease agents/sandlot-controller-manager is held by none")
	judge("never there", nil, "Error: Lease agents/sandlot-controller-manager is not there")
	expectFound(t, "certificates", keeping.judge(held(time.Second), "agents", now))
	expectFound(t, "none keeps certificates", keeping.judge(held(2*time.Minute), "agents", now), "Error: Lease agents/sandlot-certificates was renewed 2m0s ago")
	expectFound(t, "certificates given back", keeping.judge(&coordinationv1.Lease{}, "agents", now)) // as when that was switched off
	expectFound(t, "certificates are not kept", keeping.judge(nil, "agents", now))
}

func TestJudgePolicies(t *testing.T) {
	well := func() *policies {
		p := &policies{there: map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}, createsPods: true}
		for _, name := range []string{dryrunpolicy.Name, priorityPolicy, podsPolicy} {
			p.there[name] = &admissionregistrationv1.ValidatingAdmissionPolicy{}
			p.there[name].Spec.FailurePolicy = new(admissionregistrationv1.Fail)
			b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
			b.Spec.PolicyName, b.Spec.ValidationActions = name, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
			p.bound = append(p.bound, b)
		}
		p.there[dryrunpolicy.Name].Spec = dryrunpolicy.Spec()
		p.there[podsPolicy].Spec.FailurePolicy = new(admissionregistrationv1.Ignore)
		p.network = []networkingv1.NetworkPolicy{{Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}}}}
		return p
	}
	const unbound = "Error: sandlot-apiserver may create pods in every namespace, and nothing holds it to dry runs: "
	const past, first = "Warning: no policy sandlot-sandbox-pods", "Warning: no policy sandlot-priority"
	for name, test := range map[string]struct {
		change func(*policies)
		want   []string
	}{
		"well":        {func(*policies) {}, nil},
		"no policy":   {func(p *policies) { delete(p.there, dryrunpolicy.Name) }, []string{unbound + "there is no ValidatingAdmissionPolicy"}},
		"no bindings": {func(p *policies) { p.bound = nil }, []string{unbound + "no ValidatingAdmissionPolicyBinding", first, past}},
		"only warns": {func(p *policies) {
			p.bound[0].Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
		}, []string{unbound}},
		"only somewhere": {func(p *policies) { p.bound[0].Spec.MatchResources = &admissionregistrationv1.MatchResources{} }, []string{unbound}},
		"says nothing": {func(p *policies) { p.there[dryrunpolicy.Name].Spec.Validations[0].Expression = "true" },
			[]string{unbound + "ValidatingAdmissionPolicy sandlot-apiserver-dry-runs does not say what it is to say"}},
		"ignores errors": {func(p *policies) {
			p.there[dryrunpolicy.Name].Spec.FailurePolicy = new(admissionregistrationv1.Ignore)
		}, []string{unbound}},
		"without a right":     {func(p *policies) { delete(p.there, dryrunpolicy.Name); p.createsPods = false }, nil},
		"any priority":        {func(p *policies) { delete(p.there, priorityPolicy) }, []string{first}},
		"priority by chance":  {func(p *policies) { p.there[priorityPolicy].Spec.FailurePolicy = new(admissionregistrationv1.Ignore) }, []string{first}},
		"priority by another": {func(p *policies) { p.there[priorityPolicy].Spec.ParamKind = &admissionregistrationv1.ParamKind{} }, []string{first}},
		"priority of some":    {func(p *policies) { p.bound[1].Spec.ParamRef = &admissionregistrationv1.ParamRef{} }, []string{first}},
		"no NetworkPolicy":    {func(p *policies) { p.network = nil }, []string{"Warning: no NetworkPolicy in namespace agents"}},
		"one for some":        {func(p *policies) { p.network[0].Spec.PodSelector.MatchLabels = map[string]string{"a": "b"} }, []string{"Warning: no NetworkPolicy in namespace agents"}},
		"an open policy":      {func(p *policies) { p.network[0].Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}} }, []string{"Warning: no NetworkPolicy in namespace agents"}},
	} {
		p := well()
		test.change(p)
		expectFound(t, name, judgePolicies(p, "agents"), test.want...)
	}
}

func TestJudgeRights(t *testing.T) {
	lacks := []lacking{
		{controllerManager, right{resource: "pods", choice: byNamespace}, []string{"create"}},
		{apiServer, right{group: ours, resource: "sandboxes", subresource: "status", name: "a"}, []string{"get", "list"}},
	}
	expectFound(t, "lacking", judgeRights(lacks, "agents"),
		"Error: ServiceAccount agents/sandlot-apiserver may not get, list sandboxes/status.agents.kruise.io a",
		"Warning: ServiceAccount agents/sandlot-controller-manager may not create pods")
}

func TestJudgeQuotas(t *testing.T) {
	quota := func(namespace, claims, used string) corev1.ResourceQuota {
		q := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "q"}}
		q.Spec.Hard = corev1.ResourceList{counted[0]: resource.MustParse(claims), counted[1]: resource.MustParse("10"), corev1.ResourcePods: resource.MustParse("0")}
		q.Status.Used = corev1.ResourceList{counted[0]: resource.MustParse(used), counted[1]: resource.MustParse("0"), corev1.ResourcePods: resource.MustParse("0")}
		return q
	}
	half := quota("half", "10", "0")
	delete(half.Spec.Hard, counted[1])
	used := sets.New("with", "full", "half", "without")
	got := judgeQuotas(used, []corev1.ResourceQuota{quota("with", "10", "9"), quota("full", "10", "10"), half, quota("unused", "1", "1")})
	expectFound(t, "quotas", got, "Warning: ResourceQuota full/q is full: 10 of 10 count/sandboxclaims.agents.kruise.io", "Warning: 2 namespaces with pools or templates have no quota")
	if diff := cmp.Diff([]string{"Namespace half", "Namespace without"}, got[1].Objects); diff != "" {
		t.Errorf("namespaces without (-want +got):\n%s", diff)
	}
	expectFound(t, "none used", judgeQuotas(nil, nil))
}

func TestJudgeEtcd(t *testing.T) {
	alarm, err := readHealth([]byte(`{"health":"false","reason":"ALARM NOSPACE"}`))
	if err != nil {
		t.Fatal(err)
	}
	size, quota, err := readSize([]byte("# TYPE etcd_mvcc_db_total_size_in_bytes gauge\netcd_mvcc_db_total_size_in_bytes 8e+09\n" +
		"# TYPE etcd_server_quota_backend_bytes gauge\netcd_server_quota_backend_bytes 1e+10\n"))
	if err != nil {
		t.Fatal(err)
	}
	expectFound(t, "etcd", judgeEtcd([]member{{name: "a", alarm: alarm, size: 1, quota: quota}, {name: "b", size: size, quota: quota}, {name: "c", size: size - 1, quota: quota}}, "agents"),
		"Error: etcd in Pod agents/a is not healthy: health false: ALARM NOSPACE", "Warning: etcd in Pod agents/b has used 80% of its quota")
	if well, err := readHealth([]byte(`{"health":"true","reason":""}`)); well != "" || err != nil {
		t.Errorf("a healthy member says %q, %v", well, err)
	}
	for _, other := range []string{"<html>", `{"kind":"Status","status":"Failure","reason":"ServiceUnavailable"}`} {
		if alarm, err := readHealth([]byte(other)); err == nil {
			t.Errorf("%s was read as %q", other, alarm)
		}
	}
}

func TestJudgeBackup(t *testing.T) {
	job := func(ago time.Duration) *batchv1.CronJob {
		return &batchv1.CronJob{Status: batchv1.CronJobStatus{LastSuccessfulTime: &metav1.Time{Time: now.Add(-ago)}}}
	}
	expectFound(t, "fresh", judgeBackup(job(47*time.Hour), "agents", now))
	expectFound(t, "old", judgeBackup(job(49*time.Hour), "agents", now), "Error: the last backup of CronJob agents/sandlot-backup that succeeded is 49h0m0s old")
	made := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	expectFound(t, "just made", judgeBackup(made, "agents", now))
	expectFound(t, "never", judgeBackup(made, "agents", now.Add(48*time.Hour)), "Error: CronJob agents/sandlot-backup has made no backup in the 49h0m0s since it was made")
	for well, job := range map[string]*batchv1.CronJob{
		"the newest backup was made 3h0m0s ago":                      job(3 * time.Hour),
		"the CronJob was made 1h0m0s ago and has made no backup yet": made,
	} {
		if got := wellBackedUp(job, now); got != well {
			t.Errorf("it is told %q, want %q", got, well)
		}
	}
	made.Spec.Suspend = new(true)
	expectFound(t, "suspended", judgeBackup(made, "agents", now), "Warning: CronJob agents/sandlot-backup is suspended")
	expectFound(t, "none", judgeBackup(nil, "agents", now), "Warning: CronJob agents/sandlot-backup is not there")
}
