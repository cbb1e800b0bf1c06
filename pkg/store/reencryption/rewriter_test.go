// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package reencryption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/pkg/apiserver/storekeys"
	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
	"github.com/sandlot-io/sandlot/pkg/store/rewriting"
)

// withKeys encrypts with the first of the keys and can read with all. "plain" is none.
func withKeys(names ...string) value.Transformer {
	var list []value.PrefixTransformer
	for _, name := range names {
		if name == Plain {
			list = append(list, value.PrefixTransformer{Transformer: identity.NewEncryptCheckTransformer()})
			continue
		}
		var key [32]byte
		copy(key[:], name)
		list = append(list, value.PrefixTransformer{Prefix: []byte("k8s:enc:secretbox:v1:" + name + ":"), Transformer: secretbox.NewSecretboxTransformer(key)})
	}
	return value.NewPrefixTransformers(errors.New("no such key"), list...)
}

const prefix = "/test/things/"

// servers is a list of servers and what they say.
type servers struct {
	mu   sync.Mutex
	said map[string]string
}

type server struct {
	*servers
	name string
}

func (s *servers) say(name, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said[name] = key
}

func (s *server) Say(_ context.Context, key string) error {
	s.say(s.name, key)
	return nil
}

func (s *server) Said(context.Context) (map[string]string, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.said), s.name, nil
}

func startEtcd(t *testing.T) *clientv3.Client {
	t.Helper()
	etcd, err := embeddedetcd.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	client, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func newRewriter(kv clientv3.KV, s Servers, clk clock.WithTicker, transformer value.Transformer) *Rewriter {
	return New(Options{KV: kv, StoragePrefix: "test", Servers: s, Clock: clk, Resources: []Resource{{Prefix: prefix, Transformer: transformer}}})
}

// settled looks, and once more when all have agreed for long enough. It returns the last
// error.
func settled(ctx context.Context, clk *clocktesting.FakeClock, rewriters ...*Rewriter) (err error) {
	for range 2 {
		for _, r := range rewriters {
			err = r.look(ctx)
		}
		clk.Step(settle)
	}
	return err
}

// fill stores values as a server with the transformer does.
func fill(t *testing.T, kv clientv3.KV, from, to int, transformer value.Transformer) {
	t.Helper()
	for i := from; i < to; i++ {
		key := fmt.Sprintf("%s%04d", prefix, i)
		data, err := transformer.TransformToStorage(t.Context(), []byte("content of "+key), value.DefaultContext(key))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Put(t.Context(), key, string(data)); err != nil {
			t.Fatal(err)
		}
	}
}

// keysInUse returns how many values there are of each key, and fails if one of them has
// other content than it was given.
func keysInUse(t *testing.T, kv clientv3.KV, transformer value.Transformer) map[string]int {
	t.Helper()
	all, err := kv.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]int{}
	for _, kv := range all.Kvs {
		keys[keyOf(kv.Value)]++
		plain, _, err := transformer.TransformFromStorage(t.Context(), kv.Value, value.DefaultContext(string(kv.Key)))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(plain), "content of "+string(kv.Key)) {
			t.Errorf("%s has %q", kv.Key, plain)
		}
	}
	return keys
}

func recorded(t *testing.T, kv clientv3.KV) string {
	t.Helper()
	resp, err := kv.Get(t.Context(), "/test/"+storekeys.Encryption)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return ""
	}
	return string(resp.Kvs[0].Value)
}

func mustBe(t *testing.T, what string, got, want map[string]int) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: -want +got\n%s", what, diff)
	}
}

// From plain text to a key, to the next one, and back: everything follows, and nothing is
// written when there is nothing to do.
func TestEverythingFollows(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	s := &server{&servers{said: map[string]string{}}, "a"}
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	fill(t, etcd, 0, 120, withKeys(Plain))
	if _, err := etcd.Put(t.Context(), "/test/thing", "not of the resource"); err != nil {
		t.Fatal(err)
	}
	for _, stage := range []struct {
		keys []string
		want string
	}{
		{[]string{"k1", Plain}, "secretbox:v1:k1"},
		{[]string{"k2", "k1", Plain}, "secretbox:v1:k2"},
		{[]string{Plain, "k2", "k1"}, Plain},
	} {
		transformer := withKeys(stage.keys...)
		if err := settled(t.Context(), clk, newRewriter(etcd, s, clk, transformer)); err != nil {
			t.Fatal(err)
		}
		mustBe(t, stage.want, keysInUse(t, etcd, transformer), map[string]int{stage.want: 120})
		if got := recorded(t, etcd); got != stage.want {
			t.Errorf("written down is %q, want %q", got, stage.want)
		}
		before := revision(t, etcd)
		if err := settled(t.Context(), clk, newRewriter(etcd, s, clk, transformer)); err != nil {
			t.Fatal(err)
		}
		if after := revision(t, etcd); after != before {
			t.Errorf("%s: %d writes when there is nothing to do", stage.want, after-before)
		}
	}
}

func revision(t *testing.T, kv clientv3.KV) int64 {
	t.Helper()
	resp, err := kv.Get(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// As long as one server writes with another key nothing is done, and one of those that
// agree does it then.
func TestWaitsForAllServers(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	list := &servers{said: map[string]string{"c": "", "d": "secretbox:v1:k1"}}
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	fill(t, etcd, 0, 3, withKeys("k1"))
	transformer := withKeys("k2", "k1")
	a := newRewriter(etcd, &server{list, "a"}, clk, transformer)
	b := newRewriter(etcd, &server{list, "b"}, clk, transformer)
	look := func() {
		t.Helper()
		if err := settled(t.Context(), clk, b, a); err != nil {
			t.Fatal(err)
		}
	}
	old := map[string]int{"secretbox:v1:k1": 3}
	look() // c is of a version that says nothing, d has not seen the key yet
	mustBe(t, "two are behind", keysInUse(t, etcd, transformer), old)
	list.say("d", "secretbox:v1:k2"+renews)
	look()
	mustBe(t, "one is behind", keysInUse(t, etcd, transformer), old)
	list.say("c", "secretbox:v1:k2")
	look()
	mustBe(t, "one does not know what is renewed", keysInUse(t, etcd, transformer), old)
	list.say("c", "secretbox:v1:k2"+renews)
	if err := settled(t.Context(), clk, b); err != nil {
		t.Fatal(err)
	}
	mustBe(t, "it is another one's work", keysInUse(t, etcd, transformer), old)
	if err := a.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustBe(t, "they agree for a moment", keysInUse(t, etcd, transformer), old)
	look()
	mustBe(t, "all agree", keysInUse(t, etcd, transformer), map[string]int{"secretbox:v1:k2": 3})
}

// kvHook lets a test act before a transaction.
type kvHook struct {
	clientv3.KV
	before func()
}

func (k kvHook) Txn(ctx context.Context) clientv3.Txn {
	k.before()
	return k.KV.Txn(ctx)
}

// A server that ends in the middle leaves the rest to the next one.
func TestGoesOnAfterAnEnd(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	fill(t, etcd, 0, 130, withKeys("k1"))
	transformer := withKeys("k2", "k1")
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	ctx, cancel := context.WithCancel(t.Context())
	writes := 0
	hooked := kvHook{etcd, func() {
		if writes++; writes == 70 {
			cancel()
		}
	}}
	if err := settled(ctx, clk, newRewriter(hooked, &server{&servers{said: map[string]string{}}, "a"}, clk, transformer)); !errors.Is(err, context.Canceled) {
		t.Fatalf("it ends with %v", err)
	}
	if got := keysInUse(t, etcd, transformer); got["secretbox:v1:k1"] < 60 || got["secretbox:v1:k2"] < 68 || recorded(t, etcd) != unfinished+"secretbox:v1:k2" {
		t.Fatalf("in the middle there are %v, and %q is written down", got, recorded(t, etcd))
	}
	if err := settled(t.Context(), clk, newRewriter(etcd, &server{&servers{said: map[string]string{}}, "b"}, clk, transformer)); err != nil {
		t.Fatal(err)
	}
	mustBe(t, "after the next server", keysInUse(t, etcd, transformer), map[string]int{"secretbox:v1:k2": 130})
}

// Two at once, and clients that write and delete meanwhile: no write of theirs is lost.
func TestRaces(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	fill(t, etcd, 0, 100, withKeys("k1"))
	transformer := withKeys("k2", "k1")
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { // each believes to be alone
			clk := clocktesting.NewFakeClock(time.Unix(0, 0))
			err := settled(t.Context(), clk, newRewriter(etcd, &server{&servers{said: map[string]string{}}, "a"}, clk, transformer))
			if err != nil && !errors.Is(err, errChanged) { // by the other
				t.Error(err)
			}
		})
	}
	written := map[string]string{}
	both.Go(func() {
		for i := 0; i < 100; i += 3 {
			key := fmt.Sprintf("%s%04d", prefix, i)
			if i%2 == 0 {
				if _, err := etcd.Delete(t.Context(), key); err != nil {
					t.Error(err)
				}
				written[key] = ""
				continue
			}
			written[key] = "content of " + key + ", changed"
			data, err := transformer.TransformToStorage(t.Context(), []byte(written[key]), value.DefaultContext(key))
			if err == nil {
				_, err = etcd.Put(t.Context(), key, string(data))
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	both.Wait()
	mustBe(t, "afterwards", keysInUse(t, etcd, transformer), map[string]int{"secretbox:v1:k2": 83})
	for key, want := range written {
		resp, err := etcd.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(resp.Kvs) > 0 {
			plain, _, err := transformer.TransformFromStorage(t.Context(), resp.Kvs[0].Value, value.DefaultContext(key))
			if err != nil {
				t.Fatal(err)
			}
			got = string(plain)
		}
		if got != want {
			t.Errorf("%s has %q, want %q", key, got, want)
		}
	}
}

// A write that comes between the read and the write of the pass is looked at again.
func TestLooksAgainAfterAConflict(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	fill(t, etcd, 0, 1, withKeys("k1"))
	transformer := withKeys("k2", "k1")
	once := sync.OnceFunc(func() { fill(t, etcd, 0, 1, withKeys("k1")) }) // by a server that is late
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	r := newRewriter(kvHook{etcd, once}, &server{&servers{said: map[string]string{}}, "a"}, clk, transformer)
	if err := settled(t.Context(), clk, r); err != nil {
		t.Fatal(err)
	}
	mustBe(t, "afterwards", keysInUse(t, etcd, transformer), map[string]int{"secretbox:v1:k2": 1})
}

// A value that is to be renewed keeps its content when encryption is turned on, and when it is turned
// off again: versions that do not encrypt may not read what is renewed.
func TestNotRenewedWithoutAKey(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	const secret = "/test/secret"
	if _, err := etcd.Put(t.Context(), secret, "first"); err != nil {
		t.Fatal(err)
	}
	list := &servers{said: map[string]string{}}
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	for _, step := range []struct {
		keys    []string
		written string
	}{{[]string{"k1", Plain}, "secretbox:v1:k1"}, {[]string{Plain, "k1"}, Plain}} {
		transformer := withKeys(step.keys...)
		r := newRewriter(etcd, &server{list, "a"}, clk, transformer)
		r.options.Resources = append(r.options.Resources, Resource{
			Prefix: secret, Transformer: transformer,
			Renew: func(plain []byte) ([]byte, error) { return append(plain, " renewed"...), nil },
		})
		if err := settled(t.Context(), clk, r); err != nil {
			t.Fatal(err)
		}
		resp, err := etcd.Get(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		plain, _, err := transformer.TransformFromStorage(t.Context(), resp.Kvs[0].Value, value.DefaultContext(secret))
		if err != nil {
			t.Fatal(err)
		}
		if got := keyOf(resp.Kvs[0].Value); got != step.written || string(plain) != "first" {
			t.Errorf("with the keys %q it is %q, encrypted with %s", step.keys, plain, got)
		}
	}
}

// A value that is to be renewed gets other content when it is encrypted with another key, once,
// also where the pass begins anew. A server has read it before it counts as done.
func TestRenewed(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	fill(t, etcd, 0, 3, withKeys("k1"))
	list := &servers{said: map[string]string{}}
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	transformer := withKeys("k2", "k1")
	const secret = "/test/secret"
	data, err := withKeys("k1").TransformToStorage(t.Context(), []byte("first"), value.DefaultContext(secret))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Put(t.Context(), secret, string(data)); err != nil {
		t.Fatal(err)
	}
	content := func() string {
		resp, err := etcd.Get(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		plain, _, err := transformer.TransformFromStorage(t.Context(), resp.Kvs[0].Value, value.DefaultContext(secret))
		if err != nil {
			t.Fatal(err)
		}
		return keyOf(resp.Kvs[0].Value) + " " + string(plain)
	}
	var reads map[string]string
	refuses := ""
	newServer := func(name string) *Rewriter {
		r := newRewriter(etcd, &server{list, name}, clk, transformer)
		r.options.Resources = append(r.options.Resources, Resource{
			Prefix: secret, Transformer: transformer,
			Renew: func(plain []byte) ([]byte, error) { return append(plain, " second"...), nil },
		})
		r.options.Refresh = func(context.Context) error {
			if name == refuses {
				return errors.New("etcd is away")
			}
			reads[name] = recorded(t, etcd) + " " + content()
			return nil
		}
		return r
	}
	const done, renewed = "secretbox:v1:k2", "secretbox:v1:k2 first second"
	a, b := newServer("a"), newServer("b")
	reads = map[string]string{}
	refuses = "a"
	if err := settled(t.Context(), clk, b, a); err == nil || content() != "secretbox:v1:k1 first" {
		t.Fatalf("without having read it, a server has made it %q: %v", content(), err)
	}
	refuses = ""
	if err := settled(t.Context(), clk, b, a); err != nil {
		t.Fatal(err)
	}
	if got := content(); got != renewed || recorded(t, etcd) != done {
		t.Errorf("it is %q, written down is %q", got, recorded(t, etcd))
	}
	if want := unfinished + done + " " + renewed; reads["a"] != want {
		t.Errorf("before everything was done a server has read %q, want %q", reads["a"], want)
	}
	refuses = "b"
	if err := b.look(t.Context()); err == nil {
		t.Error("a server that could not read it counts as done")
	}
	refuses = ""
	if err := b.look(t.Context()); err != nil || reads["b"] != done+" "+renewed {
		t.Errorf("the other server has read %q, %v", reads["b"], err)
	}
	if _, err := etcd.Delete(t.Context(), "/test/"+storekeys.Encryption); err != nil { // as a late server does
		t.Fatal(err)
	}
	clk.Step(settle)
	if err := settled(t.Context(), clk, b, a); err != nil || recorded(t, etcd) != done || content() != renewed {
		t.Errorf("after another pass it is %q, %v", content(), err)
	}
}

// A server that still writes with the old key, and comes when everything is done or while
// it is being done, makes that be done again.
func TestLateServer(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"meanwhile": false, "afterwards": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := startEtcd(t)
			fill(t, etcd, 0, 10, withKeys("k1"))
			list := &servers{said: map[string]string{}}
			clk := clocktesting.NewFakeClock(time.Unix(0, 0))
			transformer, old := withKeys("k2", "k1"), withKeys("k1", "k2")
			// It begins, writes behind the pass, reads the new configuration and is gone
			// before another server reads the list.
			late := func() {
				if err := newRewriter(etcd, &server{list, "z"}, clk, old).Retract(t.Context()); err != nil {
					t.Error(err)
				}
				fill(t, etcd, 0, 1, old)
			}
			writes := 0
			kv := kvHook{etcd, func() {
				if writes++; writes == 9 && !after {
					late()
				}
			}}
			r := newRewriter(kv, &server{list, "a"}, clk, transformer)
			if err := settled(t.Context(), clk, r); errors.Is(err, errChanged) == after {
				t.Fatalf("the pass ends with %v", err)
			}
			if after {
				late()
			}
			if got := recorded(t, etcd); got != "" {
				t.Fatalf("%q is written down", got)
			}
			clk.Step(pause)
			if err := settled(t.Context(), clk, r); err != nil {
				t.Fatal(err)
			}
			mustBe(t, "in the end", keysInUse(t, etcd, transformer), map[string]int{"secretbox:v1:k2": 10})
			if got := recorded(t, etcd); got != "secretbox:v1:k2" {
				t.Errorf("%q is written down", got)
			}
		})
	}
}

// A value whose key is missing is said, keeps nothing else from being done, and is not
// looked for without a pause.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	fill(t, etcd, 0, 1, withKeys("lost"))
	fill(t, etcd, 1, 4, withKeys("k1"))
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	gets := 0
	r := newRewriter(countedGets{etcd, &gets}, &server{&servers{said: map[string]string{}}, "a"}, clk, withKeys("k2", "k1"))
	err := settled(t.Context(), clk, r)
	if err == nil || !strings.Contains(err.Error(), "secretbox:v1:lost") || !strings.Contains(err.Error(), "1 values") {
		t.Errorf("the error is %v", err)
	}
	mustBe(t, "the others", keysInUse(t, etcd, withKeys("k2", "k1", "lost")), map[string]int{"secretbox:v1:k2": 3, "secretbox:v1:lost": 1})
	if got := recorded(t, etcd); got == "secretbox:v1:k2" {
		t.Errorf("%q is written down", got)
	}
	gets = 0
	if err := r.look(t.Context()); err != nil || gets > 1 {
		t.Errorf("again at once: %d reads, %v", gets, err)
	}
	clk.Step(pause)
	if err := r.look(t.Context()); err == nil || gets < 2 {
		t.Errorf("after the pause: %d reads, %v", gets, err)
	}
}

// full is an etcd that takes no more writes.
type full struct{ clientv3.KV }

func (f full) Txn(ctx context.Context) clientv3.Txn { return fullTxn{f.KV.Txn(ctx)} }

type fullTxn struct{ clientv3.Txn }

func (t fullTxn) If(cs ...clientv3.Cmp) clientv3.Txn { return fullTxn{t.Txn.If(cs...)} }

func (t fullTxn) Then(ops ...clientv3.Op) clientv3.Txn { return fullTxn{t.Txn.Then(ops...)} }

func (t fullTxn) Else(ops ...clientv3.Op) clientv3.Txn { return fullTxn{t.Txn.Else(ops...)} }

func (t fullTxn) Commit() (*clientv3.TxnResponse, error) { return nil, rpctypes.ErrNoSpace }

// An etcd that takes no writes ends a pass, and says nothing about keys.
func TestFullEtcd(t *testing.T) { // not beside others, whose metrics are these
	etcd := startEtcd(t)
	fill(t, etcd, 0, 2*rewriting.PageSize, withKeys("k1"))
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	gets := 0
	r := newRewriter(full{countedGets{etcd, &gets}}, &server{&servers{said: map[string]string{}}, "a"}, clk, withKeys("k2", "k1"))
	unreadable.Set(0)
	if rewritten, err := r.pass(t.Context()); !errors.Is(err, rpctypes.ErrNoSpace) || rewritten != 0 || gets != 1 {
		t.Errorf("%d values were rewritten with %d reads, %v", rewritten, gets, err)
	}
	if got, err := testutil.GetGaugeMetricValue(unreadable); err != nil || got != 0 {
		t.Errorf("%v values are unreadable, %v", got, err)
	}
}

// A value that etcd takes as it is, and not with what the encryption adds, keeps nothing else from
// being done. Users who may write can make one.
func TestTooLarge(t *testing.T) { // not beside others, whose metrics are these
	etcd := startEtcd(t)
	fill(t, etcd, 1, 4, withKeys("k1"))
	for size := 3 << 19; ; size -= 16 {
		_, err := etcd.Put(t.Context(), prefix+"0000", strings.Repeat("x", size)) // before the others
		if err == nil {
			break
		}
		if !errors.Is(err, rpctypes.ErrRequestTooLarge) {
			t.Fatal(err)
		}
	}
	r := newRewriter(etcd, &server{&servers{said: map[string]string{}}, "a"}, clocktesting.NewFakeClock(time.Unix(0, 0)), withKeys("k2", "k1", Plain))
	unreadable.Set(7)
	if rewritten, err := r.pass(t.Context()); !errors.Is(err, rpctypes.ErrRequestTooLarge) || rewritten != 3 || !strings.Contains(err.Error(), prefix+"0000") {
		t.Errorf("%d values were rewritten, %v", rewritten, err)
	}
	if got, err := testutil.GetGaugeMetricValue(unreadable); err != nil || got != 0 {
		t.Errorf("%v values are unreadable, %v", got, err)
	}
}

type countedGets struct {
	clientv3.KV
	gets *int
}

func (c countedGets) Get(ctx context.Context, key string, o ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	*c.gets++
	return c.KV.Get(ctx, key, o...)
}

func TestKeyOf(t *testing.T) {
	t.Parallel()
	for stored, want := range map[string]string{
		"k8s:enc:secretbox:v1:key-1:\x00:\xff": "secretbox:v1:key-1",
		"k8s:enc:kms:v2:plugin:data":           "kms:v2:plugin",
		`{"kind": "Sandbox"}`:                  Plain,
		"":                                     Plain,
	} {
		if got := keyOf([]byte(stored)); got != want {
			t.Errorf("%q: %q, want %q", stored, got, want)
		}
	}
}
