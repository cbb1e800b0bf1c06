// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import "k8s.io/component-base/metrics"

// GiveBacksFailed counts the claims of creates without a response that were not given back. The server
// registers it.
var GiveBacksFailed = metrics.NewCounter(&metrics.CounterOpts{
	Namespace:      "sandlot",
	Subsystem:      "gateway",
	Name:           "give_backs_failed_total",
	Help:           "How many creates without a response may have left a sandbox, because it could not be given back.",
	StabilityLevel: metrics.ALPHA,
})
