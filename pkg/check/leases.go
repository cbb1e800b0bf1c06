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

// role is a part of the work of controller managers, for which one of them holds a lease.
type role struct {
	lease string
	// mayRest is true for work that may be switched off; the lease is given back then.
	mayRest bool
	// idle says what is not done while none holds the lease.
	idle string
	// otherwise is what to do if it is not to be done by controller managers.
	otherwise string
}

var (
	controllers = role{lease: controllerManager, idle: "no controller manager works"}
	keeping     = role{
		lease: "sandlot-certificates", mayRest: true, idle: "no controller manager renews certificates and keys",
		otherwise: "; if certificates and keys are looked after by others, delete the lease",
	}
)

// lookAtLeases looks at whether the controllers work, and what keeps certificates and keys.
func lookAtLeases(ctx context.Context, c *cluster) (problems []findings.Finding, well string, err error) {
	for _, role := range []role{controllers, keeping} {
		lease, err := c.kube.CoordinationV1().Leases(c.namespace).Get(ctx, role.lease, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			lease, err = nil, nil
		}
		if err != nil {
			return nil, "", err
		}
		problems = append(problems, role.judge(lease, c.namespace, c.now)...)
		if role == controllers && lease != nil {
			well = fmt.Sprintf("%s leads the controllers", ptr.Deref(lease.Spec.HolderIdentity, ""))
		}
	}
	if len(problems) > 0 {
		return problems, "", nil
	}
	return nil, well, nil
}

// judge judges the lease of a role, nil if there is none.
func (r role) judge(lease *coordinationv1.Lease, namespace string, now time.Time) []findings.Finding {
	object := fmt.Sprintf("Lease %s/%s", namespace, r.lease)
	one := func(format string, args ...any) []findings.Finding {
		return []findings.Finding{problem(findings.Error, object, fmt.Sprintf(format, args...), fmt.Sprintf(
			"kubectl -n %s get pods -l app.kubernetes.io/name=%s, and see their logs%s", namespace, controllerManager, r.otherwise))}
	}
	held := lease != nil && ptr.Deref(lease.Spec.HolderIdentity, "") != "" && lease.Spec.RenewTime != nil
	switch {
	case !held && r.mayRest:
		return nil
	case lease == nil:
		return one("%s is not there: no controller manager has ever led, so pools are not filled", object)
	case !held:
		return one("%s is held by none: %s", object, r.idle)
	}
	ends := lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
	if now.Sub(ends) > stale {
		return one("%s was renewed %s ago for the last time: %s", object, now.Sub(lease.Spec.RenewTime.Time).Round(time.Second), r.idle)
	}
	return nil
}
