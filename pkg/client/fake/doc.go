// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fake is for unit tests of programs that claim sandboxes: a clientset in memory
// that binds, so that no server is needed.
//
// It simulates what a client sees of claims:
//
//   - names, UIDs and defaults, generateName, AlreadyExists, dry run;
//   - claims by templateName, sandboxTemplateRef and warmPool, served from the available
//     sandboxes of the pools, that is of what Fill or the test has put there; status,
//     conditions and messages, labels and annotations of the sandboxes, shutdownTime;
//   - onShortage Fail (429 with cause, 422 for a set that is not there),
//     Wait, AllOrNothing, and createOnNoStock: fresh sandboxes are ready at once;
//   - claims that wait, oldest first, are served when sandboxes come, and watches tell;
//   - TimeOut, and a claimTimeout that is shortened, end a claim with what it has;
//   - release, deletion and reclaimPolicy Delete;
//   - the counts in the status of sets.
//
// It has no clock, users, rights or quotas: nothing happens by itself, pools are not
// refilled, nothing expires. It validates little, does not share stock between requesters,
// runs no admission, and does not set up agent-runtimes or change sandboxes in place. A
// claim made by server-side apply is stored and not bound. For all of that run the server:
// "sandlot up" needs no cluster.
//
// Errors are made as with any fake of client-go, by PrependReactor.
package fake
