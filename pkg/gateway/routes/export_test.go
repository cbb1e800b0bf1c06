// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

// MaxAddressReads is how many sandboxes are read for their addresses at a time.
const MaxAddressReads = maxAddressReads
