// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// answer is what comes back through the proxy of a pod.
type answer struct {
	body string
	err  error
}

func (a answer) DoRaw(context.Context) ([]byte, error) { return []byte(a.body), a.err }

func (a answer) Stream(context.Context) (io.ReadCloser, error) { return nil, errors.ErrUnsupported }

// TestLookAtEtcd: a member that does not answer hides nothing of the others.
func TestLookAtEtcd(t *testing.T) {
	const (
		health = `{"health":"true","reason":""}`
		nearly = "# TYPE etcd_mvcc_db_total_size_in_bytes gauge\netcd_mvcc_db_total_size_in_bytes 9\n" +
			"# TYPE etcd_server_quota_backend_bytes gauge\netcd_server_quota_backend_bytes 10\n"
	)
	refused := apierrors.NewServiceUnavailable("error trying to reach service")
	blocked := answer{`{"kind":"Status","status":"Failure"}`, refused}
	look := func(answers map[string]answer) ([]string, error) {
		client := fake.NewClientset()
		for _, name := range []string{"a", "b", "c"} {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: name, Labels: map[string]string{"app.kubernetes.io/name": "sandlot-etcd"}}}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			if name == "b" {
				pod.Status.Conditions[0].Status = corev1.ConditionFalse
			}
			if err := client.Tracker().Add(pod); err != nil {
				t.Fatal(err)
			}
		}
		client.AddProxyReactor("pods", func(action clienttesting.Action) (bool, rest.ResponseWrapper, error) {
			get := action.(clienttesting.ProxyGetAction)
			return true, answers[get.GetName()+" "+get.GetPath()], nil
		})
		found, _, err := lookAtEtcd(t.Context(), &cluster{kube: client, namespace: "agents"})
		var told []string
		for _, f := range found {
			told = append(told, string(f.Level)+": "+f.Message)
		}
		expectFound(t, "actions", found, told...)
		return told, err
	}
	for name, test := range map[string]struct {
		answers map[string]answer
		want    []string
	}{
		"two are not reached": {
			map[string]answer{"a health": blocked, "b health": blocked, "c health": {body: health}, "c metrics": {body: nearly}},
			[]string{
				"NotLookedAt: etcd in Pod agents/a could not be asked how it is: error trying to reach service",
				"Error: etcd in Pod agents/b does not answer, and the pod is not ready: error trying to reach service",
				"Warning: etcd in Pod agents/c has used 90% of its quota, at which writes end",
			},
		},
		"an alarm and no metrics": {
			map[string]answer{
				"a health": {`{"health":"false","reason":"ALARM NOSPACE"}`, refused}, "a metrics": blocked,
				"b health": {body: health}, "b metrics": {}, "c health": {body: health}, "c metrics": {},
			},
			[]string{
				"Error: etcd in Pod agents/a is not healthy: health false: ALARM NOSPACE",
				"NotLookedAt: etcd in Pod agents/a could not be asked how it is: error trying to reach service",
			},
		},
	} {
		told, err := look(test.answers)
		if diff := cmp.Diff(test.want, told); diff != "" || err != nil {
			t.Errorf("%s: %v, found (-want +got):\n%s", name, err, diff)
		}
	}
	forbidden := apierrors.NewForbidden(corev1.Resource("pods/proxy"), "a", nil)
	if told, err := look(map[string]answer{"a health": {`{"kind":"Status"}`, forbidden}}); !apierrors.IsForbidden(err) || len(told) > 0 {
		t.Errorf("without the right: %q, %v", told, err)
	}
}
