// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storecheck reads all that an API server has stored in an etcd, as of one
// revision, and reports what must not be: what cannot be decoded, keys that no one knows,
// and what breaks the invariants. It writes nothing, and needs no API server.
package storecheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/sandlot-io/sandlot/pkg/findings"
)

const (
	// pageSize is how many values are read at a time. One has 1.5 MiB at most.
	pageSize = 100
	// maxFindings is how many findings of a level a report has.
	maxFindings = 1000
)

// Options say what is checked.
type Options struct {
	// Prefix begins the keys of the store: --etcd-prefix of its API server.
	Prefix string
	// Now is the time by which claims are judged that should have ended.
	Now time.Time
	// Transformers decrypt what is encrypted at rest; see LoadTransformers. With nil only
	// what is in plain text can be read.
	Transformers value.ResourceTransformers
}

// Report is what a check found.
type Report struct {
	// Prefix is that of the keys that were read, and Revision that of etcd as of which.
	Prefix   string `json:"prefix"`
	Revision int64  `json:"revision"`
	// Keys is how many keys there are below the prefix, and Objects how many objects of
	// each resource of them could be read.
	Keys    int            `json:"keys"`
	Objects map[string]int `json:"objects"`
	// Findings are errors first; of each level the first 1,000. An error is a breach: what
	// the programs never write. NotLookedAt is what could not be read, so that a report
	// without errors does not say that there are none. None is OK.
	Findings []findings.Finding `json:"findings"`
	// Omitted is how many findings there are beside these.
	Omitted int `json:"omitted,omitempty"`
}

// Errors is how many breaches the report has, and Unread how many findings say that
// something could not be read. Only with neither is the store known to be well.
func (r *Report) Errors() int { return findings.Count(r.Findings, findings.Error) }

// Unread is described at Errors.
func (r *Report) Unread() int { return findings.Count(r.Findings, findings.NotLookedAt) }

// LoadTransformers returns what decrypts a store, from the file of --encryption-provider-config
// of its API server.
func LoadTransformers(ctx context.Context, file string) (value.ResourceTransformers, error) {
	config, err := encryptionconfig.LoadEncryptionConfig(ctx, file, false, "sandlot-check")
	if err != nil {
		return nil, fmt.Errorf("reading the encryption configuration %s: %w", file, err)
	}
	return encryptionconfig.StaticTransformers(config.Transformers), nil
}

// Run checks the store below a prefix. The error is of etcd, which did not answer or has
// compacted the revision while it was read; whatever is stored gives a report.
func Run(ctx context.Context, kv clientv3.KV, o Options) (*Report, error) {
	r := newReader(o)
	begin := path.Join("/", o.Prefix) + "/"
	end, from := clientv3.GetPrefixRangeEnd(begin), begin
	for {
		page, err := kv.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(r.report.Revision))
		if errors.Is(err, rpctypes.ErrCompacted) {
			return nil, fmt.Errorf("revision %d was compacted while it was read; check again: %w", r.report.Revision, err)
		}
		if err != nil {
			return nil, fmt.Errorf("reading from %s on: %w", from, err)
		}
		if r.report.Revision == 0 {
			r.report.Prefix, r.report.Revision = begin, page.Header.Revision
		}
		for _, pair := range page.Kvs {
			r.read(ctx, begin, pair)
		}
		if !page.More || len(page.Kvs) == 0 {
			break
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
	return r.conclude(), nil
}

// conclude judges what was read.
func (r *reader) conclude() *Report {
	r.tellUnread()
	if r.report.Keys == 0 {
		r.found(findings.Finding{
			Level: findings.NotLookedAt, Check: "Empty", Message: "nothing is stored below " + r.report.Prefix,
			Action: "see that --etcd-servers and --etcd-prefix are those of the API server",
		})
	}
	r.state.Partial = len(r.unread) > 0
	r.state.Judge(r.now, r.found)
	rank := []findings.Level{findings.Error, findings.NotLookedAt, findings.Warning}
	slices.SortStableFunc(r.report.Findings, func(a, b findings.Finding) int {
		return cmp.Compare(slices.Index(rank, a.Level), slices.Index(rank, b.Level))
	})
	return r.report
}

// found adds a finding to the report.
func (r *reader) found(f findings.Finding) {
	if r.told[f.Level] == maxFindings {
		r.report.Omitted++
		return
	}
	r.told[f.Level]++
	r.report.Findings = append(r.report.Findings, f)
}
