// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/pkg/findings"
)

const (
	// backupJob is the CronJob that takes backups.
	backupJob = "sandlot-backup"
	// oldBackup is how old the newest backup may be.
	oldBackup = 48 * time.Hour
)

func lookAtBackup(ctx context.Context, c *cluster) ([]findings.Finding, string, error) {
	job, err := c.kube.BatchV1().CronJobs(c.namespace).Get(ctx, backupJob, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		job, err = nil, nil
	}
	if err != nil {
		return nil, "", err
	}
	problems := judgeBackup(job, c.namespace, c.now)
	if len(problems) > 0 {
		return problems, "", nil
	}
	return nil, wellBackedUp(job, c.now), nil
}

func wellBackedUp(job *batchv1.CronJob, now time.Time) string {
	ago := now.Sub(lastBackup(job)).Round(time.Minute)
	if job.Status.LastSuccessfulTime == nil {
		return fmt.Sprintf("the CronJob was made %s ago and has made no backup yet", ago)
	}
	return fmt.Sprintf("the newest backup was made %s ago", ago)
}

// lastBackup is when the last backup was made, or, before the first, when the CronJob was.
func lastBackup(job *batchv1.CronJob) time.Time {
	return ptr.Deref(job.Status.LastSuccessfulTime, job.CreationTimestamp).Time
}

func judgeBackup(job *batchv1.CronJob, namespace string, now time.Time) []findings.Finding {
	object := fmt.Sprintf("CronJob %s/%s", namespace, backupJob)
	switch {
	case job == nil:
		return []findings.Finding{problem(findings.Warning, object, object+" is not there: this install does not back up its store",
			"add the component backup, if nothing else backs up that etcd: docs/operations.md")}
	case ptr.Deref(job.Spec.Suspend, false):
		return []findings.Finding{problem(findings.Warning, object, object+" is suspended", "let it run again")}
	case now.Sub(lastBackup(job)) > oldBackup:
		message := "the last backup of %s that succeeded is %s old"
		if job.Status.LastSuccessfulTime == nil {
			message = "%s has made no backup in the %s since it was made"
		}
		return []findings.Finding{problem(findings.Error, object, fmt.Sprintf(message, object, now.Sub(lastBackup(job)).Round(time.Hour)),
			fmt.Sprintf("kubectl -n %s get jobs, and see the logs of the last ones of %s", namespace, backupJob))}
	}
	return nil
}
