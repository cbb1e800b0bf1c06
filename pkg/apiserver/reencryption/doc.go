// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reencryption writes again what is stored with another key than the one that
// new values are encrypted with: after the key was rotated, and after encryption at rest
// was turned on or off. The content of the values stays the same.
//
// Each server says in the list of servers which key it writes with. When all say the
// same, one of them goes through the store; when it has come to the end, and all still
// say the same, it writes that key down in the store. So nothing is done twice, a server
// that is ended in the middle leaves the rest to the next one, and what is written down
// is true: no server of the list writes with another key, and no value is encrypted with
// one.
package reencryption
