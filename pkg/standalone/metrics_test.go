// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// One process shows at one place what its server and its controllers do.
func TestMetricsOfServerAndControllers(t *testing.T) {
	o := testOptions(t)
	run := up(t, o)
	defer run.stop(t)
	template, err := v1alpha1.RawTemplate(corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "python"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Name: "metered"}}
	set.Spec.Replicas = new(int32(2))
	set.Spec.Template = template
	if _, err := run.client.AgentsV1alpha1().SandboxSets("default").Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	run.waitAvailable(t, "metered", 2)

	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	for _, want := range []string{
		"apiserver_request_total", "process_cpu_seconds_total", "sandlot_claim_duration_seconds",
		`sandlot_pool_sandboxes sandboxset="metered"`,
		`sandlot_sandboxset_sandboxes sandboxset="metered"`,
		`workqueue_depth name="sandboxset-replenish"`,
		`controller_runtime_reconcile_total controller="sandboxset-replenish"`,
		"sandlot_sandbox_start_duration_seconds",
	} {
		name, label, _ := strings.Cut(want, " ")
		found := false
		for _, metric := range families[name].GetMetric() {
			found = found || label == ""
			for _, pair := range metric.GetLabel() {
				found = found || label == fmt.Sprintf("%s=%q", pair.GetName(), pair.GetValue())
			}
		}
		if !found {
			t.Errorf("%s is missing", want)
		}
	}
}
