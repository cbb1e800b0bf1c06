// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package routes knows which sandbox is meant by an id of the E2B API, and where that
// sandbox is at this moment. It watches all of them, and reads an id from the API server
// that the watch has not reported yet. It never opens a connection to a sandbox.
package routes
