// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Command lines that say nothing of use are refused before a server is asked: there is
// none here.
func TestBadCommandLines(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	cases := map[string]struct {
		args string
		want string
	}{
		"no pool":                 {"claim", "one pool"},
		"two pools":               {"claim a b", "got 2 arguments"},
		"exec of nothing":         {"claim a --exec", "follows --"},
		"a command, not executed": {"claim a -- true", "--exec only"},
		"rm of nothing":           {"claim a --rm", "--rm is for --exec"},
		"output of exec":          {"claim a --exec -o json -- true", "--output"},
		"one input for two":       {"claim a -r 2 --exec -i -- true", "one input"},
		"no replicas":             {"claim a -r 0", "not positive"},
		"negative time":           {"claim a --timeout -1s", "negative"},
		"unknown format":          {"claim a -o bogus", "allowed formats are: go-template"},
		"exec of two":             {"exec a b", "got 2 arguments"},
		"exec of a set":           {"exec sbs/a", "neither a sandboxclaim"},
		"release of nothing":      {"release a", "--all"},
		"release of both":         {"release a b --all", "--all"},
		"release without a claim": {"release --all", "name of a claim"},
		"list for two":            {"list --mine --claimed-by ann", "exclude"},
		"a key without a name":    {"e2b-key create", "--name"},
		"a key with a long name":  {"e2b-key create --name " + strings.Repeat("n", 513), "512 bytes"},
		"a long team":             {"e2b-key create --name n -n " + strings.Repeat("t", 41), "it has 41 characters, and 40"},
		"keys of a long team":     {"e2b-key list -n " + strings.Repeat("t", 41), "at most 40"},
		"a key with an argument":  {"e2b-key create --name n x", "unknown command"},
		"an unknown verb":         {"e2b-key delete", "unknown command"},
		"revoke of nothing":       {"e2b-key revoke", "id of an API key"},
		"revoke of two":           {"e2b-key revoke 0123456789abcdef 0123456789abcdef", "id of an API key"},
		"revoke of a key":         {"e2b-key revoke e2b_0123456789abcdef", "id of an API key"},
		"top too often":           {"top --interval 1ms", "shorter than"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard}
			err := NewPluginCommand(streams, slices.Concat([]string{"kubectl-sandlot"}, strings.Fields(tc.args))).ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want one that says %q", err, tc.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	cases := map[string]struct {
		err  error
		want string
		code int
	}{
		"nothing":             {},
		"an error":            {errors.New("no \x1b[31mred\r"), "Error: no ^[[31mred\\r\n", 1},
		"of the server":       {apierrors.NewNotFound(v1alpha1.SchemeGroupVersion.WithResource("sandboxclaims").GroupResource(), "x"), "Error from server (NotFound): sandboxclaims.agents.kruise.io \"x\" not found\n", 1},
		"of the remote":       {utilexec.CodeExitError{Err: errors.New("command terminated with exit code 7"), Code: 7}, "Error: command terminated with exit code 7\n", 7},
		"of the remote, more": {errors.Join(utilexec.CodeExitError{Err: errors.New("seven"), Code: 7}, errors.New("left")), "Error: seven\nleft\n", 7},
		"interrupted":         {fmt.Errorf("%w here", interrupted), "Error: interrupted here\n", 130},
		"cancelled":           {context.Canceled, "Error: context canceled\n", 130},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if code := Report(&out, tc.err); code != tc.code || out.String() != tc.want {
				t.Errorf("reports %d and %q, want %d and %q", code, out.String(), tc.code, tc.want)
			}
		})
	}
}

func TestNewName(t *testing.T) {
	for _, pool := range []string{"a", "a.b-c.", strings.Repeat("long-", 20)} {
		name := newName(pool)
		if errs := validation.IsDNS1123Label(name); len(errs) > 0 || name == newName(pool) {
			t.Errorf("name for %s is %s: %v", pool, name, errs)
		}
	}
}

func TestOnlySandbox(t *testing.T) {
	claim := testClaim("run", "pool", 9)
	if _, err := onlySandbox(claim); err == nil || !strings.Contains(err.Error(), "has no sandbox") {
		t.Errorf("without sandboxes: %v", err)
	}
	claim.Status.Sandboxes = []v1alpha1.ClaimedSandbox{{Name: "a"}}
	if name, err := onlySandbox(claim); name != "a" || err != nil {
		t.Errorf("with one: %q, %v", name, err)
	}
	for _, name := range []string{"b", "c", "d", "e", "f", "g"} {
		claim.Status.Sandboxes = append(claim.Status.Sandboxes, v1alpha1.ClaimedSandbox{Name: name})
	}
	_, err := onlySandbox(claim)
	if err == nil || !strings.HasSuffix(err.Error(), "has 7 sandboxes, so name the one that you mean: a b c d e") {
		t.Errorf("with seven: %v", err)
	}
}
