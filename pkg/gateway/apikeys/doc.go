// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apikeys has the API keys of the E2B API: it creates, authenticates and revokes them. A
// key belongs to a team, and a team is a namespace.
//
// A key is "e2b_" and 64 lower-case hexadecimal digits. The first 16 are its id, which is no
// secret; the others are. It is shown once, when it is made: a Backend keeps a salted
// SHA-256 hash. The secret part has 192 random bits, so a slow hash would add nothing.
//
// In a cluster a key is a Secret (see Secrets) that every replica of the gateway watches, so
// that a key that is revoked is refused everywhere at once:
//
//   - A key that a replica has not heard of yet is read by its name, so it can be used as soon
//     as another replica has made it. At most 8 such reads are under way at a time, an id that
//     there is not is remembered for a second, and a source of requests causes at most 50
//     reads of ids that there are not, and 10 more each second. Beyond that the watch is
//     believed: an id that it has not reported is no key. So behind a proxy, which is one source, many
//     wrong keys only delay a new key until the watch has reported it.
//   - The watch is opened again every 20 seconds, so there is contact even if no key changes. After
//     30 seconds without contact no key is believed that was not read within 5 seconds. So a
//     replica that is cut off from its watch, and from nothing else, accepts a key for at most
//     35 seconds after it was revoked. Without the API it then accepts none.
//
// A key may create others in its team. Each has the ids of all its ancestors, so an administrator who
// revokes a stolen key also revokes the keys that were created with it, even if a key in between is
// gone.
package apikeys
