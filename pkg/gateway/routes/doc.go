// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package routes knows which sandbox is meant by an id of the E2B API, and where that
// sandbox is at this moment. It watches all of them, and asks the API server about an id
// that the watch has not told yet. It never opens a connection to a sandbox.
package routes
