// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

// MaxUnreadOfUser is how many unread responses of one user there may be.
const MaxUnreadOfUser = maxUnreadOfUser
