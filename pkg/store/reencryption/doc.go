// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reencryption writes again what is stored with another key than the one that
// new values are encrypted with: after the key was rotated, and after encryption at rest
// was turned on or off. The content of the values stays the same.
//
// Each server says in the list of servers which key it writes with. When all have said the
// same for a while, one of them goes through the store; when it has come to the end, and
// all still say the same, it writes that key down in the store. So nothing is done twice,
// and a server that is ended in the middle leaves the rest to the next one.
//
// What is written down is true: a server that writes with another key, because it has just
// started or its configuration changed, removes what is written down before it says so,
// and a pass writes nothing down if what it wrote at its beginning is not there at its end.
package reencryption
