// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/pkg/findings"
)

// stale is for how long a lease that has ended may be anyone's.
const stale = time.Minute

// lookAtLeases looks at whether the controllers work. That for certificates may be switched off.
func lookAtLeases(ctx context.Context, c *cluster) ([]findings.Finding, string, error) {
	lease, err := c.kube.CoordinationV1().Leases(c.namespace).Get(ctx, controllerManager, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease, err = nil, nil
	}
	if err != nil {
		return nil, "", err
	}
	problems := judgeLease(lease, c.namespace, c.now)
	if len(problems) > 0 {
		return problems, "", nil
	}
	return nil, fmt.Sprintf("%s leads the controllers", ptr.Deref(lease.Spec.HolderIdentity, "")), nil
}

func judgeLease(lease *coordinationv1.Lease, namespace string, now time.Time) []findings.Finding {
	object := fmt.Sprintf("Lease %s/%s", namespace, controllerManager)
	action := fmt.Sprintf("kubectl -n %s get pods -l app.kubernetes.io/name=%s, and see their logs", namespace, controllerManager)
	one := func(format string, args ...any) []findings.Finding {
		return []findings.Finding{problem(findings.Error, object, fmt.Sprintf(format, args...), action)}
	}
	switch {
	case lease == nil:
		return one("%s is not there: no controller manager has ever led, so pools are not filled and certificates not renewed", object)
	case ptr.Deref(lease.Spec.HolderIdentity, "") == "" || lease.Spec.RenewTime == nil:
		return one("%s is held by none: no controller manager works", object)
	}
	ends := lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
	if now.Sub(ends) > stale {
		return one("%s was renewed %s ago for the last time: no controller manager works", object, now.Sub(lease.Spec.RenewTime.Time).Round(time.Second))
	}
	return nil
}
