// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package proxy routes requests to ports of E2B sandboxes. It finds out which sandbox and port a
// request means, checks access, and resumes sandboxes that are paused. pkg/sandboxproxy forwards
// the requests.
//
// docs/design.md follows a request through the code.
package proxy
