// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// backupCronJob is the CronJob of an install that takes backups.
	backupCronJob = "sandlot-backup"
	backupRefresh = time.Minute
)

// lastBackup has no series where nothing takes backups.
var lastBackup = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "sandlot_backup_last_success_timestamp_seconds",
	Help: "When the CronJob " + backupCronJob + " last took a good backup, or since when it is there if it has taken none.",
}, nil)

// backups keeps lastBackup: a pod that takes a backup ends before it could be asked for metrics.
type backups struct {
	cronJobs batchclient.CronJobInterface
}

var (
	_ manager.Runnable               = backups{}
	_ manager.LeaderElectionRunnable = backups{}
)

func newBackups(cfg *rest.Config, namespace string) (backups, error) {
	client, err := batchclient.NewForConfig(cfg)
	if err != nil {
		return backups{}, err
	}
	return backups{client.CronJobs(namespace)}, nil
}

// NeedLeaderElection returns false: each process has its metrics.
func (backups) NeedLeaderElection() bool { return false }

// Start looks until ctx is done.
func (b backups) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, b.look, backupRefresh)
	return nil
}

// look leaves the metric as it is when kube-apiserver cannot be asked: it grows old then too.
func (b backups) look(ctx context.Context) {
	job, err := b.cronJobs.Get(ctx, backupCronJob, metav1.GetOptions{})
	switch {
	case err == nil:
		lastBackup.WithLabelValues().Set(float64(lastSuccess(job).Unix()))
	case apierrors.IsNotFound(err): // an install without
		lastBackup.Reset()
	}
}

func lastSuccess(job *batchv1.CronJob) time.Time {
	if t := job.Status.LastSuccessfulTime; t != nil {
		return t.Time
	}
	return job.CreationTimestamp.Time
}
