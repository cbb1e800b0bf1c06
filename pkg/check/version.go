// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sandlot-io/sandlot/pkg/findings"
)

var (
	// oldest is the oldest Kubernetes that has all that an install is made of: podFailurePolicy
	// of Jobs and unhealthyPodEvictionPolicy of PodDisruptionBudgets are the newest. The chart
	// refuses what is older, too.
	oldest = version.MustParseGeneric("1.31")
	// tested is the oldest Kubernetes that Sandlot is tested with: docs/versions.md.
	tested = version.MustParseGeneric("1.35")
)

func lookAtVersion(_ context.Context, c *cluster) ([]findings.Finding, string, error) {
	info, err := c.kube.Discovery().ServerVersion()
	if err != nil {
		return nil, "", err
	}
	return judgeVersion(info.GitVersion), "Kubernetes is " + info.GitVersion, nil
}

func judgeVersion(is string) []findings.Finding {
	parsed, err := version.ParseGeneric(is)
	switch {
	case err != nil:
		return []findings.Finding{problem(findings.Warning, "", fmt.Sprintf("the version %q of Kubernetes cannot be read: %v", is, err), "see that it is "+oldest.String()+" or newer")}
	case parsed.LessThan(oldest):
		return []findings.Finding{problem(findings.Error, "", fmt.Sprintf("Kubernetes is %s, and Sandlot needs %s or newer", is, oldest), "upgrade the cluster")}
	case parsed.LessThan(tested):
		return []findings.Finding{problem(findings.Warning, "", fmt.Sprintf("Kubernetes is %s, and Sandlot is tested with %s and newer", is, tested), "upgrade the cluster, or try in a cluster like this what you rely on")}
	}
	return nil
}
