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

// Leases of the controller manager: of its controllers, and of what keeps certificates and
// keys, which may be switched off.
const (
	controllersLease  = controllerManager
	certificatesLease = "sandlot-certificates"
)

// lookAtLeases looks at whether the controllers work, and what keeps certificates and keys.
func lookAtLeases(ctx context.Context, c *cluster) (problems []findings.Finding, well string, err error) {
	for _, name := range []string{controllersLease, certificatesLease} {
		lease, err := c.kube.CoordinationV1().Leases(c.namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			lease, err = nil, nil
		}
		if err != nil {
			return nil, "", err
		}
		problems = append(problems, judgeLease(name, lease, c.namespace, c.now)...)
		if name == controllersLease && lease != nil {
			well = fmt.Sprintf("%s leads the controllers", ptr.Deref(lease.Spec.HolderIdentity, ""))
		}
	}
	if len(problems) > 0 {
		return problems, "", nil
	}
	return nil, well, nil
}

func judgeLease(name string, lease *coordinationv1.Lease, namespace string, now time.Time) []findings.Finding {
	object := fmt.Sprintf("Lease %s/%s", namespace, name)
	action := fmt.Sprintf("kubectl -n %s get pods -l app.kubernetes.io/name=%s, and see their logs", namespace, controllerManager)
	idle := "no controller manager works"
	if name == certificatesLease {
		action += "; if certificates and keys are looked after by others, delete the lease"
		idle = "no controller manager renews certificates and keys"
	}
	one := func(format string, args ...any) []findings.Finding {
		return []findings.Finding{problem(findings.Error, object, fmt.Sprintf(format, args...), action)}
	}
	held := lease != nil && ptr.Deref(lease.Spec.HolderIdentity, "") != "" && lease.Spec.RenewTime != nil
	switch {
	case !held && name == certificatesLease:
		return nil // that may be switched off, and was given back if so
	case lease == nil:
		return one("%s is not there: no controller manager has ever led, so pools are not filled", object)
	case !held:
		return one("%s is held by none: %s", object, idle)
	}
	ends := lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
	if now.Sub(ends) > stale {
		return one("%s was renewed %s ago for the last time: %s", object, now.Sub(lease.Spec.RenewTime.Time).Round(time.Second), idle)
	}
	return nil
}
