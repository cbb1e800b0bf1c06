// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

var (
	poolindex = []string{"./pkg/poolindex"}
	etcdtxn   = []string{"./pkg/etcdtxn"}
)

var mutations = []mutation{
	{"poolindex: news of a sandbox that is taken are lost", "pkg/poolindex/entries.go",
		"\t\te.news = &news{candidate: c}\n", "", poolindex, "TestNews"},
	{"poolindex: old news count", "pkg/poolindex/entries.go",
		"if c.ResourceVersion <= e.heardOf() {", "if false {", poolindex, "TestNews"},
	{"poolindex: a released sandbox that is gone comes back", "pkg/poolindex/entries.go",
		"case n != nil && n.gone:", "case false:", poolindex, "TestNews|TestAnswers|TestAgainstModel"},
	{"poolindex: a list older than the watch counts", "pkg/poolindex/index.go",
		"if x.seen > resourceVersion {", "if false {", poolindex, "TestUpsertListed"},
	{"poolindex: an old list takes away what is newer", "pkg/poolindex/entries.go",
		" || resourceVersion < e.heardOf() {", " {", poolindex, "TestRetain"},
	{"poolindex: a list forgets what is taken", "pkg/poolindex/entries.go",
		"\t\te.news = &news{candidate: Candidate{ResourceVersion: resourceVersion}, gone: true}\n\t\treturn\n", "", poolindex, "TestRetain"},
	{"poolindex: news are lost when the candidate is answered for", "pkg/poolindex/entries.go",
		"case n == nil || n.candidate.ResourceVersion < e.ResourceVersion:", "case true:", poolindex, "TestNews|TestAnswers"},
	{"poolindex: the state from before a claim makes it available", "pkg/poolindex/index.go",
		"x.entries.spend(c, resourceVersion)", "x.entries.spend(c, c.ResourceVersion)", poolindex, "TestNews|TestAnswers"},
	{"poolindex: what is taken stays counted", "pkg/poolindex/pools.go",
		"ps.byKey[p].taken--", "", poolindex, "TestDepths|TestNothingIsLeftBehind"},
	{"poolindex: empty pools pile up", "pkg/poolindex/pool.go",
		`len(pl.revisions)+pl.taken == 0 && pl.current == ""`, "false", poolindex, "TestNothingIsLeftBehind"},
	{"poolindex: the set's revision is not preferred", "pkg/poolindex/pool.go",
		"if r := pl.revisions[pl.current]; r != nil && !r.suspended {", "if r := pl.revisions[pl.current]; false {", poolindex, "TestTakeOrder"},
	{"poolindex: suspended sandboxes of the set's revision are taken", "pkg/poolindex/pool.go",
		"r != nil && !r.suspended {\n\t\treturn r", "r != nil {\n\t\treturn r", poolindex, "TestSuspend"},
	{"poolindex: what was looked for before news is suspended after it", "pkg/poolindex/suspensions.go",
		"if s.resumed != asOf {", "if false {", poolindex, "TestSuspend"},
	{"poolindex: a sandbox that leaves a suspended revision is no news", "pkg/poolindex/entries.go",
		"return can && (!could || c.Pool != was)", "return (can || could) && c.Pool != was", poolindex, "TestUpsertIntoSuspended"},
	{"poolindex: locked sandboxes are available", "pkg/claims/spec.go",
		`sb.Annotations[v1alpha1.AnnotationLock] == "" && `, "", poolindex, "TestAvailable"},
	{"poolindex: paused sandboxes are available", "pkg/claims/spec.go",
		"!sb.Spec.Paused && ", "", poolindex, "TestAvailable"},
	{"poolindex: sandboxes without an address are available", "pkg/claims/spec.go",
		` && sb.Status.PodInfo.PodIP != ""`, "", poolindex, "TestAvailable"},
	{"poolindex: what a list lacks stays", "pkg/poolindex/feed.go",
		"\t\treturn ok\n", "\t\treturn ok || true\n", poolindex, "TestSandboxListed"},
	{"poolindex: servers prefer the same sandboxes", "pkg/poolindex/share.go",
		"w > mine || w == mine && server > self", "w > mine && false", poolindex, "TestShare"},

	{"etcdtxn: nothing is compared", "pkg/etcdtxn/txn.go",
		`clientv3.Compare(clientv3.ModRevision(w.key), "=", w.at)`, `clientv3.Compare(clientv3.ModRevision(w.key), "!=", -1)`, etcdtxn, "TestConflicts|TestOneWinner"},
	{"etcdtxn: an update needs no revision", "pkg/etcdtxn/txn.go",
		"if at <= 0 {", "if at < 0 {", etcdtxn, "TestRefusals"},
	{"etcdtxn: objects get another revision", "pkg/etcdtxn/txn.go",
		"UpdateObject(w.obj, uint64(resp.Header.Revision))", "UpdateObject(w.obj, uint64(resp.Header.Revision)+1)", etcdtxn, "TestOneRevision"},
	{"etcdtxn: a conflict blames the first object", "pkg/etcdtxn/txn.go",
		"Moved{Index: i, ", "Moved{Index: i - i, ", etcdtxn, "TestConflicts"},
	{"etcdtxn: keys are not counted", "pkg/etcdtxn/txn.go",
		"len(etcdKey)*3 + len(data)", "len(data)", etcdtxn, "TestBytesCountKeys"},
	{"etcdtxn: too many operations are not too large", "pkg/etcdtxn/errors.go",
		"errors.Is(err, rpctypes.ErrTooManyOps), ", "", etcdtxn, "TestClassify"},
	{"etcdtxn: an overload leaves the outcome unknown", "pkg/etcdtxn/errors.go",
		"errors.Is(err, rpctypes.ErrTooManyRequests)", "false", etcdtxn, "TestClassify"},
	{"etcdtxn: running out of space is a refusal", "pkg/etcdtxn/errors.go",
		"codes.NotFound, codes.Unimplemented", "codes.NotFound, codes.Unimplemented, codes.ResourceExhausted", etcdtxn, "TestClassify"},
}
