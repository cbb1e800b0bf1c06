// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package proxy leads traffic from outside to the ports of E2B sandboxes. It finds out which
// sandbox and port a request means, who may go there, and wakes sandboxes that are paused.
// pkg/sandboxproxy forwards them.
package proxy
