// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package revisioncache_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A list as of now that begins when a transaction is committed has all of it,
// whatever else is being written. With -plain it has not.
func TestListAfterCommit(t *testing.T) {
	const rounds, objects, listers, singles = 200, 100, 2, 1
	p := newPool(t)
	all := names(objects)
	var committed atomic.Uint64
	committed.Store(p.write(t, "0", all...))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	for i := range singles {
		running.Go(func() {
			for ctx.Err() == nil {
				if _, err := p.commit(ctx, "single", fmt.Sprintf("single-%d", i)); err != nil && ctx.Err() == nil {
					t.Errorf("writing one: %v", err)
					return
				}
			}
		})
	}
	for range listers {
		running.Go(func() {
			for ctx.Err() == nil {
				if err := p.hasAll(ctx, all, committed.Load()); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range rounds {
		committed.Store(p.write(t, fmt.Sprint(i+1), all...))
		if err := p.hasAll(t.Context(), all, committed.Load()); err != nil {
			t.Errorf("round %d: %v", i, err)
			break
		}
	}
	cancel()
	running.Wait()
}

// hasAll lists and says which objects are missing, or older than a revision.
func (p *pool) hasAll(ctx context.Context, names []string, revision uint64) error {
	list, err := p.list(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return err
	}
	at := map[string]string{}
	for _, sb := range list.Items {
		at[sb.Name] = sb.ResourceVersion
	}
	var old []string
	for _, name := range names {
		if v, err := parseVersion(at[name]); err != nil || v < revision {
			old = append(old, fmt.Sprintf("%s at %q", name, at[name]))
		}
	}
	if len(old) > 0 {
		return fmt.Errorf("a list at %s begun after revision %d was committed has %d old objects: %s",
			list.ResourceVersion, revision, len(old), strings.Join(old[:min(3, len(old))], ", "))
	}
	return nil
}

// Lists are what they are without this package.
func TestList(t *testing.T) {
	p := newPool(t)
	first := p.write(t, "first", names(10)...)
	second := p.write(t, "second", names(5)...)
	p.write(t, "single", "single")
	p.now(t)
	firstView, secondView := at(first, names(10)...), at(first, names(10)...)
	for _, name := range names(5) {
		secondView[name] = second
	}
	tests := map[string]struct {
		options metainternalversion.ListOptions
		want    view
		exactly uint64
	}{
		"any": {
			options: metainternalversion.ListOptions{ResourceVersion: "0", LabelSelector: mustParse(t, label+" != single")},
			want:    secondView,
		},
		"any, NotOlderThan": {
			options: metainternalversion.ListOptions{
				ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, LabelSelector: selector("second"),
			},
			want: at(second, names(5)...),
		},
		"NotOlderThan the first": {
			options: metainternalversion.ListOptions{
				ResourceVersion: format(first), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, LabelSelector: selector("second"),
			},
			want: at(second, names(5)...),
		},
		"exactly the first": {
			options: metainternalversion.ListOptions{ResourceVersion: format(first), ResourceVersionMatch: metav1.ResourceVersionMatchExact},
			want:    firstView, exactly: first,
		},
		"exactly the second": {
			options: metainternalversion.ListOptions{ResourceVersion: format(second), ResourceVersionMatch: metav1.ResourceVersionMatchExact},
			want:    secondView, exactly: second,
		},
		"exactly the second, by limit": {
			options: metainternalversion.ListOptions{ResourceVersion: format(second), Limit: 100},
			want:    secondView, exactly: second,
		},
		"now, selector": {
			options: metainternalversion.ListOptions{LabelSelector: selector("second")},
			want:    at(second, names(5)...),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			list := p.mustList(t, &tc.options)
			if diff := cmp.Diff(tc.want, viewOf(t, list)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if tc.exactly != 0 && version(t, list) != tc.exactly {
				t.Errorf("the list is at %s, want %d", list.ResourceVersion, tc.exactly)
			}
		})
	}
}

// Pages of one list are of one state, however much is written between them.
func TestListInPages(t *testing.T) {
	p := newPool(t)
	all := names(10)
	for name, exactly := range map[string]bool{"now": false, "exactly": true} {
		t.Run(name, func(t *testing.T) {
			revision := p.write(t, "listed", all...)
			options := metainternalversion.ListOptions{Limit: 3}
			if exactly {
				options.ResourceVersion, options.ResourceVersionMatch = format(revision), metav1.ResourceVersionMatchExact
			}
			got, pages := view{}, 0
			for {
				list := p.mustList(t, &options)
				if len(list.Items) > 3 || version(t, list) != revision {
					t.Fatalf("page %d has %d objects at %s, want 3 at %d", pages, len(list.Items), list.ResourceVersion, revision)
				}
				for i := range list.Items {
					got[list.Items[i].Name] = version(t, &list.Items[i])
				}
				pages++
				if list.Continue == "" {
					break
				}
				options = metainternalversion.ListOptions{Limit: 3, Continue: list.Continue}
				p.write(t, "between", all...)
			}
			if diff := cmp.Diff(at(revision, all...), got); diff != "" || pages != 4 {
				t.Errorf("%d pages (-want +got):\n%s", pages, diff)
			}
		})
	}
}

func TestListErrors(t *testing.T) {
	p := newPool(t)
	revision := p.write(t, "first", "a", "b")
	tests := map[string]struct {
		options metainternalversion.ListOptions
		check   func(error) bool
	}{
		"no version": {metainternalversion.ListOptions{ResourceVersion: "x"}, apierrors.IsBadRequest},
		"of the future": {
			metainternalversion.ListOptions{ResourceVersion: format(revision + 1_000_000), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
			func(err error) bool { return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if list, err := p.list(t.Context(), &tc.options); !tc.check(err) {
				t.Errorf("got %v, %v", list, err)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.list(ctx, &metainternalversion.ListOptions{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// A list of what was written by transactions is in order and complete also where
// nothing was ever listed before.
func TestListOfAnotherServer(t *testing.T) {
	one := newPool(t)
	one.write(t, "first", names(10)...)
	two := newPoolOn(t, one.fixture)
	revision := one.write(t, "second", names(10)...)
	var got []string
	for _, sb := range two.now(t).Items {
		if v := version(t, &sb); v != revision {
			t.Errorf("%s is at %d, want %d", sb.Name, v, revision)
		}
		got = append(got, sb.Name)
	}
	if diff := cmp.Diff(names(10), got); diff != "" || !slices.IsSorted(got) {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
