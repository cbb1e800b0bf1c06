// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestBackups: the metric shows the last good backup where backups are taken, and is not
// there elsewhere. TestRestore of pkg/e2e/cluster sees it with the rights of an install.
func TestBackups(t *testing.T) {
	made, good := time.Unix(1000, 0), time.Unix(5000, 0)
	job := batchv1.CronJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJob"},
		ObjectMeta: metav1.ObjectMeta{Name: backupCronJob, CreationTimestamp: metav1.NewTime(made)},
	}
	code := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if want := "/apis/batch/v1/namespaces/ns/cronjobs/" + backupCronJob; r.URL.Path != want {
			t.Errorf("it asks for %s, want %s", r.URL.Path, want)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if code == http.StatusOK {
			_ = json.NewEncoder(w).Encode(job)
			return
		}
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code), Reason: reasons[code]})
	}))
	defer server.Close()
	b, err := newBackups(&rest.Config{Host: server.URL}, "ns")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lastBackup.Reset)
	for _, step := range []struct {
		what string
		code int
		last *metav1.Time
		want float64 // 0 is none
	}{
		{"none yet", http.StatusOK, nil, 1000},
		{"one", http.StatusOK, new(metav1.NewTime(good)), 5000},
		{"no answer", http.StatusInternalServerError, nil, 5000},
		{"an install without", http.StatusNotFound, nil, 0},
	} {
		code, job.Status.LastSuccessfulTime = step.code, step.last
		b.look(t.Context())
		count := testutil.CollectAndCount(lastBackup)
		switch {
		case step.want == 0 && count != 0:
			t.Errorf("%s: the metric is there", step.what)
		case step.want != 0 && (count != 1 || testutil.ToFloat64(lastBackup) != step.want):
			t.Errorf("%s: %d series, want one of %g", step.what, count, step.want)
		}
	}
}

var reasons = map[int]metav1.StatusReason{
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusNotFound:            metav1.StatusReasonNotFound,
}
