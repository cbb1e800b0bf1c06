// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restore restores the store of an install from a backup. A Job prepares the
// snapshot, stops everything that uses the store, and hands the snapshot to the members of
// the store, which fetch it before they start.
//
// The Job and the members meet in a Secret: while it has an id, a member whose volume was not
// restored under this id replaces its data. The Job may be killed at any point: the next
// attempt begins with a new id, or, if the store has been restored already, goes on from
// there.
package restore
