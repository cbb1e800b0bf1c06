// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limits bounds what the requests of a user, of a namespace or of a source may take of the API server: its
// connections, the headers and bodies of requests, the responses that are not read, lists and other reads, watches, and
// selectors. Its handlers are part of the chain that pkg/apiserver builds.
package limits
