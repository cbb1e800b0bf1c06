// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/install/certificates"
)

// TestChartMetrics: alerts and dashboard are those of artifacts/dashboard, whole.
func TestChartMetrics(t *testing.T) {
	t.Parallel()
	objects := renderAll(t, "cluster", "")
	alerts, err := os.ReadFile(filepath.Join("..", "dashboard", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := yaml.UnmarshalStrict(alerts, &want); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for id, object := range byName(t, objects) {
		kind, _, _ := strings.Cut(id, " ")
		kinds[kind]++
		if kind == "PrometheusRule" {
			if diff := cmp.Diff(any(want), object.(map[string]any)["spec"]); diff != "" {
				t.Errorf("the alerts differ: -want +got\n%s", diff)
			}
		}
	}
	if kinds["PrometheusRule"] != 1 {
		t.Errorf("there are %v", kinds)
	}
	dashboard, err := os.ReadFile(filepath.Join("..", "dashboard", "sandlot.json"))
	if err != nil {
		t.Fatal(err)
	}
	config := get[*corev1.ConfigMap](objects, "sandlot-dashboard")
	if config == nil || strings.TrimSpace(config.Data["sandlot.json"]) != strings.TrimSpace(string(dashboard)) || config.Labels["grafana_dashboard"] != "1" {
		t.Error("the dashboard is another one")
	}
	for id := range byName(t, renderChart(t, namespace)) {
		if kind, _, _ := strings.Cut(id, " "); strings.HasSuffix(kind, "Monitor") || kind == "PrometheusRule" || kind == "ConfigMap" {
			t.Errorf("%s is no choice", id)
		}
	}
}

// TestChartBackupAlert: another schedule has another time after which a backup is old.
func TestChartBackupAlert(t *testing.T) {
	t.Parallel()
	objects := renderAll(t, "cluster", "backup: {schedule: \"0 3 * * *\", maxAgeHours: 49}\n")
	for _, object := range of[*unstructured.Unstructured](objects) {
		if object.GetKind() != "PrometheusRule" {
			continue
		}
		text, err := yaml.Marshal(object.Object)
		if want := "time() - max(sandlot_backup_last_success_timestamp_seconds) > 49 * 3600"; err != nil || !strings.Contains(string(text), want) {
			t.Errorf("the alerts have no %s: %v", want, err)
		}
		return
	}
	t.Error("there are no alerts")
}

// serviceMonitor is one of the Prometheus Operator, with all that ours say.
type serviceMonitor struct {
	APIVersion, Kind string
	Metadata         map[string]any
	Spec             struct {
		Selector  struct{ MatchLabels map[string]string }
		Endpoints []monitored
	}
}

type monitored struct {
	Port, Path, Scheme, BearerTokenFile, Interval string
	HonorLabels                                   bool
	Relabelings                                   []struct{ TargetLabel, Replacement string }
	TLSConfig                                     struct {
		ServerName string
		CA         struct{ ConfigMap struct{ Name, Key string } }
	}
}

// TestChartMonitors: each is of one Service and of a port that pods have, and asks over TLS,
// with a token, and by a name that the certificate has.
func TestChartMonitors(t *testing.T) {
	t.Parallel()
	server := func(program string) string { return program + "." + namespace + ".svc" }
	want := map[string]string{
		"sandlot-apiserver sandlot-apiserver/metrics":                   server("sandlot-apiserver"),
		"sandlot-controller-manager sandlot-controller-manager/metrics": server("sandlot-controller-manager"),
		gatewayName + " " + gatewayName + "/metrics":                    "api.sandboxes.example.com",
		"sandlot-etcd sandlot-apiserver" + apiserver.EtcdMetricsPath:    server("sandlot-apiserver"),
	}
	for _, mode := range modes {
		objects := renderAll(t, mode, "metrics: {monitors: {interval: 45s, labels: {release: prometheus}}}\n")
		found := map[string]string{}
		for _, object := range of[*unstructured.Unstructured](objects) {
			if strings.HasSuffix(object.GetKind(), "Monitor") {
				checkMonitor(t, objects, object, found)
			}
		}
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("%s: jobs, what they scrape, and by which name: -want +got\n%s", mode, diff)
		}
	}
}

// checkMonitor adds what a monitor scrapes to found.
func checkMonitor(t *testing.T, objects manifests, object *unstructured.Unstructured, found map[string]string) {
	t.Helper()
	text, err := yaml.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	var monitor serviceMonitor
	if err := yaml.UnmarshalStrict(text, &monitor); err != nil {
		t.Fatal(err)
	}
	if monitor.Kind != "ServiceMonitor" || object.GetLabels()["release"] != "prometheus" {
		t.Errorf("%s %s has the labels %v", monitor.Kind, object.GetName(), object.GetLabels())
	}
	services := slices.DeleteFunc(of[*corev1.Service](objects), func(s *corev1.Service) bool {
		return !labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(s.Labels))
	})
	if len(services) != 1 {
		t.Fatalf("%s is of %d Services", object.GetName(), len(services))
	}
	w := workloads(objects)[services[0].Spec.Selector["app.kubernetes.io/name"]]
	readable := get[*rbacv1.ClusterRole](objects, "sandlot-metrics-reader").Rules[0].NonResourceURLs
	for _, endpoint := range monitor.Spec.Endpoints {
		i := slices.IndexFunc(services[0].Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == endpoint.Port })
		if i < 0 {
			t.Fatalf("Service %s has no port %s", services[0].Name, endpoint.Port)
		}
		containerPort(t, w, services[0].Spec.Ports[i].TargetPort.StrVal)
		if endpoint.Scheme != "https" || endpoint.BearerTokenFile == "" || !endpoint.HonorLabels || endpoint.Interval != "45s" {
			t.Errorf("%s asks by %+v", object.GetName(), endpoint)
		}
		if ca := endpoint.TLSConfig.CA.ConfigMap; w.GetName() != gatewayName && (ca.Name != certificates.CAConfigMap || ca.Key != "ca-bundle.crt") {
			t.Errorf("%s trusts %v", object.GetName(), ca)
		}
		path := "/metrics"
		if endpoint.Path != "" {
			path = endpoint.Path
		}
		if !slices.Contains(readable, path) {
			t.Errorf("%s asks for %s, which sandlot-metrics-reader may not read", object.GetName(), path)
		}
		if len(endpoint.Relabelings) != 1 || endpoint.Relabelings[0].TargetLabel != "job" {
			t.Fatalf("%s relabels %v", object.GetName(), endpoint.Relabelings)
		}
		found[endpoint.Relabelings[0].Replacement+" "+w.GetName()+path] = endpoint.TLSConfig.ServerName
	}
}
