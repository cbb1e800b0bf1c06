// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/findings"
)

// A check asks a few hundred things, most of them about rights.
const (
	qps   = 50
	burst = 200
)

// cluster is where an install is looked for.
type cluster struct {
	kube     kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	now      time.Time
	// namespace and service are those of the install, once they are known.
	namespace, service string
}

// part is a part of an install.
type part struct {
	// name is that of the check, and what is what is looked at.
	name, what string
	// look returns what is wrong, and how it is if nothing is. The error is why it could
	// not be looked at.
	look func(context.Context, *cluster) (problems []findings.Finding, well string, err error)
}

// parts are looked at in this order, after the APIs.
var parts = []part{
	{"Kubernetes", "the version of Kubernetes", lookAtVersion},
	{"Workloads", "the workloads of the install", lookAtWorkloads},
	{"Leader", "the leases of the controller managers", lookAtLeases},
	{"Certificates", "the certificates in Secrets", lookAtCertificates},
	{"Etcd", "the members of etcd", lookAtEtcd},
	{"Policies", "the admission policies and network policies", lookAtPolicies},
	{"Rights", "what the programs may do", lookAtRights},
	{"Quotas", "the quotas of namespaces with pools or templates", lookAtQuotas},
	{"Backup", "the CronJob of the backup", lookAtBackup},
}

// Run looks at the install of the cluster that config leads to, and returns what it found:
// for each part that it is well, or what is not. The error means that it could not be found
// out whether there is an install.
func Run(ctx context.Context, config *rest.Config, clk clock.PassiveClock) ([]findings.Finding, error) {
	c, err := connect(config, clk.Now())
	if err != nil {
		return nil, err
	}
	found, err := lookAtAPIs(ctx, c)
	if err != nil || c.namespace == "" {
		return found, err
	}
	for _, p := range parts {
		problems, well, err := p.look(ctx, c)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		for _, problem := range problems {
			problem.Check = p.name
			found = append(found, problem)
		}
		switch {
		case err != nil:
			found = append(found, notLookedAt(p, err))
		case !slices.ContainsFunc(problems, func(f findings.Finding) bool { return f.Level != findings.OK }):
			found = append(found, findings.Finding{Level: findings.OK, Check: p.name, Message: well})
		}
	}
	return found, nil
}

func connect(config *rest.Config, now time.Time) (*cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = qps, burst
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	return &cluster{kube: kube, dynamic: dyn, metadata: meta, now: now}, nil
}

// notLookedAt reports a part that could not be looked at.
func notLookedAt(p part, err error) findings.Finding {
	f := findings.Finding{Level: findings.NotLookedAt, Check: p.name, Message: fmt.Sprintf("%s: %v", p.what, err), Action: "check again"}
	if apierrors.IsForbidden(err) {
		f.Action = "check as a user who may read that, such as an administrator of the cluster"
	}
	return f
}

func problem(level findings.Level, object, message, action string) findings.Finding {
	f := findings.Finding{Level: level, Message: message, Action: action}
	if object != "" {
		f.Objects = []string{object}
	}
	return f
}
