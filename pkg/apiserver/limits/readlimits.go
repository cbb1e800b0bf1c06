// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/memory"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

const (
	// maxLists is how many lists are handled at a time, and maxListsOfUser how many of them are of one user.
	maxLists, maxListsOfUser = 256, 32
	// maxGets is how many other reads are handled at a time, such as gets and those of OpenAPI, and
	// maxGetsOfUser how many of them are of one user.
	maxGets, maxGetsOfUser = 2048, 256
)

// WithReadLimits refuses a list or another read with 429 if its user has too many under way. Each has a seat of API
// priority and fairness, which all ServiceAccounts share, until its client has read the response: without this, a
// user who reads none of them takes all seats. AccountOf says who a user counts for. It has to be inside of
// authentication.
func WithReadLimits(handler http.Handler) http.Handler {
	lists, gets := fairness.NewSlots(maxLists, maxListsOfUser), fairness.NewSlots(maxGets, maxGetsOfUser)
	converted := newConvertedLists()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		reader, known := request.UserFrom(req.Context())
		// Anonymous requests get no more than the health of the server, which probes have to get.
		if !ok || !known || reader.GetName() == user.Anonymous || info.Verb == "watch" || info.Subresource == "proxy" {
			handler.ServeHTTP(w, req)
			return
		}
		slots := gets
		if info.Verb == "list" {
			slots = lists
			if mayBeConverted(req) {
				budget := &listBudget{budgets: converted.of(reader), account: accountOf(req), isWhole: req.URL.Query().Get("includeObject") == string(metav1.IncludeObject)}
				defer budget.release()
				req = req.WithContext(base.WithListBudget(req.Context(), base.ListBudget{IsWhole: budget.isWhole, Reserve: budget.reserve}))
			}
		}
		release, ok := slots.Take(accountOf(req))
		if !ok {
			refuse(w, req, info, apierrors.NewTooManyRequests("too many reads of this user are under way, please try again later", 1))
			return
		}
		defer release()
		handler.ServeHTTP(w, req)
	})
}

// listUnit is the unit in which listBudgets count.
const listUnit = 256 << 10

// listBudgets bound the memory of lists as a Table or as metadata that are encoded or not read yet. The generic handlers
// encode these as a whole. A unit is of listUnit bytes.
type listBudgets struct {
	units *fairness.Slots
	// most is how many units one list may take. A list of whole objects that needs more is refused. One of metadata,
	// which garbage collectors and quotas need, takes no more.
	most int
}

// convertedLists has budgets for users, and others for the parts of Kubernetes and its administrators.
type convertedLists struct{ users, system *listBudgets }

func newConvertedLists() convertedLists { return convertedLists{newListBudgets(), newListBudgets()} }

// of returns the budgets that a user shares.
func (c convertedLists) of(reader user.Info) *listBudgets {
	if isSystem(reader) {
		return c.system
	}
	return c.users
}

// isSystem reports whether a user is a part of Kubernetes or one of its administrators.
func isSystem(reader user.Info) bool {
	isServiceAccount := strings.HasPrefix(reader.GetName(), serviceaccount.ServiceAccountUsernamePrefix)
	return slices.Contains(reader.GetGroups(), user.SystemPrivilegedGroup) || strings.HasPrefix(reader.GetName(), "system:") && !isServiceAccount ||
		slices.Contains(reader.GetGroups(), serviceaccount.MakeNamespaceGroupName(metav1.NamespaceSystem))
}

// newListBudgets returns budgets for a sixteenth of the memory of this process. A list may take four times what it
// counts for, as JSON and by the growth of buffers. A user has at most half of them.
func newListBudgets() *listBudgets {
	limit := memory.Size()
	units := max(int(limit/16/listUnit), 64)
	return &listBudgets{fairness.NewSlots(units, units/2), units / 4}
}

// listBudget is what the list of one request takes of listBudgets.
type listBudget struct {
	budgets *listBudgets
	account string
	// isWhole is set if the list has whole objects, and not only their metadata.
	isWhole bool
	taken   []func()
}

// reserve reserves bytes until release. The error is an API status error.
func (b *listBudget) reserve(bytes int) error {
	units := (bytes + listUnit - 1) / listUnit
	if units > b.budgets.most {
		if b.isWhole {
			return apierrors.NewRequestEntityTooLargeError("the list is too large with includeObject=Object, list fewer objects at a time (limit)")
		}
		units = b.budgets.most
	}
	for range units {
		release, ok := b.budgets.units.Take(b.account)
		if !ok {
			return apierrors.NewTooManyRequests("the large lists of this user as Table or metadata take too much memory, please try again later, or list fewer objects at a time (limit)", 1)
		}
		b.taken = append(b.taken, release)
	}
	return nil
}

// release releases what was reserved.
func (b *listBudget) release() {
	for _, release := range b.taken {
		release()
	}
}
