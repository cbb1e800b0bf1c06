// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restore restores the store of an install from a backup. A Job prepares the
// snapshot, stops everything that uses the store, and hands the snapshot to the members of
// the store, which fetch it before they start.
//
// The Job and the members meet in a Secret: while it has an id, a member whose volume was not
// restored under this id replaces its data. The Job may be killed at any point: the next
// attempt offers a new id in place of the old one, or, if the store has been restored already,
// continues from there. There is no id before the first offer, so that members start with what
// they have if a restore ends before it has changed anything, and none after the last member
// has the data.
package restore
