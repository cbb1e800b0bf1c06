// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup takes backups of the store of an API server, keeps them in a folder or in
// an S3 bucket, and makes of one what a restored store may start with. It never changes a
// store that is in use.
//
// A backup is one file: a snapshot of etcd, what it is encrypted with, and their checksums.
// Data lies in files meanwhile, in a folder for scratch, for it may be larger than memory.
package backup
