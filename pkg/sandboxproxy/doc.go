// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sandboxproxy forwards HTTP requests to the ports of sandboxes. It asks for the address
// of a sandbox before each new connection, and never takes a connection of another one.
package sandboxproxy
