// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package follow keeps the status of claims that are Completed true: the conditions Ready
// and Finished, and the addresses, follow the sandboxes of the claim. The allocator writes
// the statuses of all other claims.
//
// What a status should be is values (members.go, causes.go, status.go). The controller
// compares that with what it is, and writes the difference (patch.go), for a claim of many
// sandboxes seldom (pace.go). A claim whose sandboxes are well costs no write.
package follow
