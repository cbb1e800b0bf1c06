// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observed tests what operators see of a server: metrics and traces.
// Metrics are those of the whole process, so its tests run one after another and
// apart from all others.
package observed
