// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestPlugin does with "kubectl sandlot", run by a real kubectl, what users do with it.
func TestPlugin(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), "--simulated-start-delay", "10ms", "--sync-window", "1s")
	plugins := t.TempDir()
	for _, name := range []string{"kubectl-sandlot", "kubectl_complete-sandlot"} {
		if err := os.Symlink(filepath.Join(programs, "kubectl-sandlot"), filepath.Join(plugins, name)); err != nil {
			t.Fatal(err)
		}
	}
	stories := map[string]func(*testing.T, *kubectl){
		"plugin-claim":       testPluginClaim,
		"plugin-short":       testPluginShort,
		"plugin-wait":        testPluginWait,
		"plugin-interrupt":   testPluginInterrupt,
		"plugin-lost-answer": testPluginLostAnswer,
		"plugin-list":        testPluginList,
		"plugin-release":     testPluginRelease,
		"plugin-top":         testPluginTop,
		"plugin-exec":        testPluginExec,
		"plugin-complete":    testPluginComplete,
		"plugin-foreign":     testPluginForeign,
		"plugin-warnings":    testPluginWarnings,
		"plugin-standalone":  testPluginStandalone,
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kubectlFor(t, s, name)
			k.env = append(k.env, "PATH="+plugins+string(os.PathListSeparator)+os.Getenv("PATH"))
			story(t, k)
		})
	}
}

// plugin is the command line of the plugin: it takes its flags behind its name.
func (k *kubectl) plugin(args ...string) []string {
	return append([]string{"sandlot", args[0], "--namespace", k.namespace}, args[1:]...)
}

// runPlugin runs the plugin and returns what it said.
func (k *kubectl) runPlugin(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return k.start(t, k.plugin(args...)...).end(t)
}

// doPlugin runs the plugin, which has to succeed without a word on stderr.
func (k *kubectl) doPlugin(t testing.TB, args ...string) string {
	t.Helper()
	stdout, stderr, code := k.runPlugin(t, args...)
	if code != 0 || stderr != "" {
		t.Fatalf("kubectl sandlot %s ended with %d and said:\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// failPlugin runs the plugin, which has to fail and to say all of wants on stderr.
func (k *kubectl) failPlugin(t testing.TB, args []string, wants ...string) (stdout string) {
	t.Helper()
	stdout, stderr, code := k.runPlugin(t, args...)
	if code != 1 {
		t.Fatalf("kubectl sandlot %s ended with %d and said:\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	for _, want := range wants {
		if !strings.Contains(stderr, want) {
			t.Errorf("kubectl sandlot %s does not say %q:\n%s", strings.Join(args, " "), want, stderr)
		}
	}
	return stdout
}

func (k *kubectl) getClaim(t testing.TB, name string) *v1alpha1.SandboxClaim {
	t.Helper()
	claim, err := k.server.Client.AgentsV1alpha1().SandboxClaims(k.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

func (k *kubectl) fillPool(t testing.TB, replicas int32) {
	t.Helper()
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, replicas)
}

func testPluginClaim(t *testing.T, k *kubectl) {
	k.fillPool(t, 4)
	pool := k.server.sandboxes(t, k.namespace)

	table := k.doPlugin(t, "claim", "pool", "--name", "two", "-r", "2")

	names := expect.Claimed(t, k.getClaim(t, "two"), 2)
	if got := strings.Join(header(table), " "); got != "CLAIM STATUS CLAIMED SANDBOX IP CLAIMEDBY AGE" {
		t.Errorf("the columns are %s", got)
	}
	for _, name := range names {
		if pool[name] == nil || !strings.Contains(table, name) {
			t.Errorf("sandbox %s is not of the pool, or not told:\n%s", name, table)
		}
	}
	k.failPlugin(t, []string{"claim", "pool", "--name", "two"}, "already exists", `"two" already exists`)

	name := strings.TrimSpace(k.doPlugin(t, "claim", "pool", "--all-or-nothing", "--timeout", "90s", "-o", "name"))
	kind, name, _ := strings.Cut(name, "/")
	claim := k.getClaim(t, name)
	if kind != "sandboxclaim.agents.kruise.io" || !strings.HasPrefix(name, "pool-") {
		t.Errorf("the claim is called %s/%s", kind, name)
	}
	if claim.Spec.Allocation != v1alpha1.AllocationAllOrNothing || claim.Spec.ClaimTimeout.Duration.String() != "1m30s" {
		t.Errorf("claimed as %+v", claim.Spec)
	}
	out := k.doPlugin(t, "claim", "pool", "--wait", "-o", "jsonpath={.kind} {.status.phase} {.status.claimedReplicas}")
	if out != "SandboxClaim Completed 1" {
		t.Errorf("printed %q", out)
	}
}

func testPluginShort(t *testing.T, k *kubectl) {
	out := k.failPlugin(t, []string{"claim", "absent", "--wait", "--timeout", "1s", "--no-headers"}, "ended with 0/1 sandboxes: ", "SandboxSet absent not found")
	if !strings.Contains(out, "None") || strings.Contains(out, "STATUS") {
		t.Errorf("printed\n%s", out)
	}
	out, stderr, code := k.runPlugin(t, "claim", "absent", "--name", "early")
	if code != 0 || !strings.Contains(out, "Waiting") || !strings.Contains(stderr, "early waits: ") {
		t.Errorf("without --wait it ended with %d and said:\n%s%s", code, out, stderr)
	}
	k.failPlugin(t, []string{"claim", "NO POOL"}, "Error from server (Invalid)")
}

func testPluginWait(t *testing.T, k *kubectl) {
	agents := k.server.Client.AgentsV1alpha1()
	waiting := k.start(t, k.plugin("claim", "pool", "--name", "later", "--wait", "-r", "2", "-o", "name")...)
	k.awaitClaim(t, "later")
	if _, err := agents.SandboxSets(k.namespace).Create(t.Context(), builders.Set("pool", 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := waiting.end(t)
	if code != 0 || stdout != "sandboxclaim.agents.kruise.io/later\n" || !strings.Contains(stderr, "later: SandboxSet pool not found") {
		t.Errorf("ended with %d and said:\n%s%s", code, stdout, stderr)
	}
	expect.Claimed(t, k.getClaim(t, "later"), 2)

	gone := k.start(t, k.plugin("claim", "absent", "--name", "gone", "--wait")...)
	k.awaitClaim(t, "gone")
	// It is seen by the watch, or before the watch is there.
	if err := agents.SandboxClaims(k.namespace).Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := agents.SandboxClaims(k.namespace).Create(t.Context(), builders.Claim("gone", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, code := gone.end(t); code != 1 || !strings.Contains(stderr, "was deleted while it was waited for") {
		t.Errorf("ended with %d and said:\n%s%s", code, stdout, stderr)
	}
}

func testPluginInterrupt(t *testing.T, k *kubectl) {
	waiting := k.start(t, k.plugin("claim", "absent", "--name", "long", "--wait")...)
	k.awaitClaim(t, "long")
	waiting.interrupt(t)
	stdout, stderr, code := waiting.end(t)
	if code != 130 || !strings.Contains(stderr, "has 0/1 sandboxes and continues claiming: kubectl delete sandboxclaim long -n "+k.namespace) || !strings.Contains(stderr, "Error: interrupted\n") {
		t.Errorf("ended with %d and said:\n%s%s", code, stdout, stderr)
	}
	if phase := k.getClaim(t, "long").Status.Phase; phase != v1alpha1.SandboxClaimPhaseClaiming {
		t.Errorf("the claim is %s", phase)
	}

	waiting = k.start(t, k.plugin("claim", "absent", "--name", "short", "--rm", "--exec", "--", "true")...)
	k.awaitClaim(t, "short")
	waiting.interrupt(t)
	if stdout, stderr, code := waiting.end(t); code != 130 || !strings.Contains(stderr, "sandboxclaim short deleted") {
		t.Errorf("with --rm it ended with %d and said:\n%s%s", code, stdout, stderr)
	}
	if _, err := k.server.Client.AgentsV1alpha1().SandboxClaims(k.namespace).Get(t.Context(), "short", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("with --rm the claim is left: %v", err)
	}
}

// A create whose answer is lost is repeated under its name, and binds once.
func testPluginLostAnswer(t *testing.T, k *kubectl) {
	k.fillPool(t, 3)
	upstream, err := url.Parse(k.server.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	var creates atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Scheme, r.URL.Host, r.RequestURI = upstream.Scheme, upstream.Host, ""
		resp, err := k.server.HTTP.Do(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		if r.Method == http.MethodPost && creates.Add(1) == 1 {
			panic(http.ErrAbortHandler) // what the server said is lost
		}
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body) // the client finds out
	}))
	defer proxy.Close()

	name := strings.TrimSpace(k.doPlugin(t, "claim", "pool", "-o", "name", "--server", proxy.URL))

	list, err := k.server.Client.AgentsV1alpha1().SandboxClaims(k.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if creates.Load() != 2 || len(list.Items) != 1 || !strings.HasSuffix(name, "/"+list.Items[0].Name) {
		t.Errorf("%d creates made %d claims, and %s was told", creates.Load(), len(list.Items), name)
	}
	expect.Claimed(t, &list.Items[0], 1)
}

func testPluginList(t *testing.T, k *kubectl) {
	if _, stderr, code := k.runPlugin(t, "list"); code != 0 || !strings.Contains(stderr, "no sandboxes are claimed in namespace "+k.namespace) {
		t.Errorf("of nothing it ended with %d and said %s", code, stderr)
	}
	k.fillPool(t, 3)
	k.doPlugin(t, "claim", "pool", "--name", "kept")
	k.doPlugin(t, "claim", "pool", "--name", "deleted")
	outlived := k.getClaim(t, "deleted").Status.Sandboxes[0].Name
	agents := k.server.Client.AgentsV1alpha1()
	token := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"s3cret"}}}`, v1alpha1.AnnotationRuntimeAccessToken)
	if _, err := agents.Sandboxes(k.namespace).Patch(t.Context(), outlived, types.MergePatchType, token, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := agents.SandboxClaims(k.namespace).Delete(t.Context(), "deleted", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	table := k.doPlugin(t, "list")
	for _, want := range []string{"kept", k.getClaim(t, "kept").Status.Sandboxes[0].Name, "ClaimGone", outlived, "sandlot-admin"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	if out := k.doPlugin(t, "list", "-o", "name"); out != "sandboxclaim.agents.kruise.io/kept\nsandbox.agents.kruise.io/"+outlived+"\n" {
		t.Errorf("by name:\n%s", out)
	}
	if out := k.doPlugin(t, "list", "-o", "yaml"); strings.Contains(out, "s3cret") || !strings.Contains(out, "kind: SandboxClaim") || !strings.Contains(out, "kind: Sandbox\n") {
		t.Errorf("as YAML:\n%s", out)
	}
	if out := k.doPlugin(t, "list", "--claimed-by", "sandlot-admin", "-o", "name"); !strings.HasPrefix(out, "sandboxclaim.agents.kruise.io/kept\n") {
		t.Errorf("of the admin:\n%s", out)
	}
	if stdout, stderr, code := k.runPlugin(t, "list", "--claimed-by", "eve"); code != 0 || stdout != "" || !strings.Contains(stderr, "no sandboxes") {
		t.Errorf("of a stranger it ended with %d and said:\n%s%s", code, stdout, stderr)
	}
	k.failPlugin(t, []string{"list", "--mine"}, "use --claimed-by") // this server has no API for it
}

func testPluginRelease(t *testing.T, k *kubectl) {
	k.fillPool(t, 3)
	k.doPlugin(t, "claim", "pool", "--name", "three", "-r", "3")
	names := expect.Claimed(t, k.getClaim(t, "three"), 3)

	if out, want := k.doPlugin(t, "release", "three", names[1]), "sandbox.agents.kruise.io/"+names[1]+" released\n"; out != want {
		t.Errorf("said %q, want %q", out, want)
	}
	k.failPlugin(t, []string{"release", "three", "another"}, "Error from server (Invalid)", "another")
	if out := k.doPlugin(t, "release", "three", "--all", "-o", "jsonpath={.kind} {.status.released[*]} {.status.remaining}"); out != "SandboxClaimRelease "+names[0]+" "+names[2]+" 0" {
		t.Errorf("printed %q", out)
	}
	if _, stderr, code := k.runPlugin(t, "release", "three", "--all"); code != 0 || !strings.Contains(stderr, "has none of these sandboxes any more") {
		t.Errorf("again it ended with %d and said %s", code, stderr)
	}
	k.failPlugin(t, []string{"release", "absent", "--all"}, "Error from server (NotFound)")
}

func testPluginTop(t *testing.T, k *kubectl) {
	k.fillPool(t, 3)
	k.doPlugin(t, "claim", "pool", "-r", "2")
	k.runPlugin(t, "claim", "absent")
	expect.FullPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, "pool", 3)

	table := strings.Fields(k.doPlugin(t, "top", "--no-headers"))
	if got := strings.Join(table, " "); got != "pool 3 3 0 0 1 2 <none> <none>" {
		t.Errorf("printed %s", got)
	}
	if out := k.doPlugin(t, "top", "pool", "-o", "name"); out != "sandboxset.agents.kruise.io/pool\n" {
		t.Errorf("by name: %s", out)
	}
	k.failPlugin(t, []string{"top", "absent"}, `sandboxset "absent" not found`)

	watching := k.start(t, k.plugin("top", "--watch", "--interval", "1s")...)
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if looks := strings.Count(watching.stdout.String(), "WANTED"); looks < 2 {
			return fmt.Errorf("%d looks", looks)
		}
		return nil
	})
	watching.interrupt(t)
	if stdout, stderr, code := watching.end(t); code != 0 || stderr != "" {
		t.Errorf("a watch ended with %d and said:\n%s%s", code, stdout, stderr)
	}
}

func testPluginExec(t *testing.T, k *kubectl) {
	k.fillPool(t, 3)
	k.doPlugin(t, "claim", "pool", "--name", "one")
	k.doPlugin(t, "claim", "pool", "--name", "two", "-r", "2")
	k.failPlugin(t, []string{"exec", "one", "--", "true"}, "is simulated: this server has no pods")
	k.failPlugin(t, []string{"exec", "two", "--", "true"}, "has 2 sandboxes, so name the one that you mean")
	k.failPlugin(t, []string{"exec", "absent"}, `neither a sandboxclaim nor a sandbox "absent"`)
	k.failPlugin(t, []string{"exec", "sbc/absent"}, "Error from server (NotFound)")

	// What was claimed for a command goes, whatever becomes of the command.
	before := k.server.sandboxes(t, k.namespace)
	k.failPlugin(t, []string{"claim", "pool", "--name", "once", "--rm", "--exec", "--", "true"}, "is simulated", "sandboxclaim once deleted, with its sandboxes")
	expect.Eventually(t.Context(), t, func(context.Context) error {
		for name, sandbox := range k.server.sandboxes(t, k.namespace) {
			if sandbox.Labels[v1alpha1.LabelClaimName] == "once" {
				return fmt.Errorf("%s is left, of %d", name, len(before))
			}
		}
		return nil
	})
}

func testPluginComplete(t *testing.T, k *kubectl) {
	k.fillPool(t, 3)
	k.doPlugin(t, "claim", "pool", "--name", "one")
	k.doPlugin(t, "claim", "pool", "--name", "two", "-r", "2")
	one := k.getClaim(t, "one").Status.Sandboxes[0].Name
	two := k.getClaim(t, "two").Status.Sandboxes

	offered := func(args ...string) string {
		stdout, _, code := k.start(t, append([]string{"__complete"}, k.plugin(args...)...)...).end(t)
		words, found := strings.CutSuffix(stdout, ":4\n") // no file names
		if code != 0 || !found {
			t.Fatalf("completing %q ended with %d:\n%s", args, code, stdout)
		}
		return strings.Join(strings.Fields(words), " ")
	}
	cases := map[string]struct {
		args []string
		want string
	}{
		"a pool to claim":         {[]string{"claim", ""}, "pool"},
		"no second pool":          {[]string{"claim", "pool", ""}, ""},
		"pools to look at":        {[]string{"top", ""}, "pool"},
		"no pool twice":           {[]string{"top", "pool", ""}, ""},
		"claims to release":       {[]string{"release", ""}, "one two"},
		"sandboxes to release":    {[]string{"release", "two", ""}, two[0].Name + " " + two[1].Name},
		"no sandbox twice":        {[]string{"release", "two", two[0].Name, ""}, two[1].Name},
		"claims and sandboxes":    {[]string{"exec", ""}, "one sbx/" + one + " sbx/" + two[0].Name + " sbx/" + two[1].Name},
		"sandboxes by their name": {[]string{"exec", "sbx/" + one[:len(one)-1]}, "sbx/" + one},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := offered(tc.args...); got != tc.want {
				t.Errorf("offers %q, want %q", got, tc.want)
			}
		})
	}
	if got := offered("list", "-o", "js"); !strings.Contains(got, "json") {
		t.Errorf("offers the formats %q", got)
	}
}

// The server's warnings are printed as kubectl prints them.
func testPluginWarnings(t *testing.T, k *kubectl) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warning", `299 - "mind the gap"`)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxSetList","items":[]}`)
	}))
	defer proxy.Close()
	if _, stderr, code := k.runPlugin(t, "top", "--server", proxy.URL); code != 0 || !strings.Contains(stderr, "Warning: mind the gap\n") {
		t.Errorf("ended with %d and said %s", code, stderr)
	}
}

// sandlot has the commands of the plugin.
func testPluginStandalone(t *testing.T, k *kubectl) {
	k.fillPool(t, 1)
	k.path = filepath.Join(programs, "sandlot")
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), k.path, args...)
		cmd.Env = k.env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("sandlot %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if out := run("claim", "pool", "-n", k.namespace, "--name", "mine", "-o", "name"); out != "sandboxclaim.agents.kruise.io/mine\n" {
		t.Errorf("claim printed %q", out)
	}
	for _, command := range []string{"list", "top"} {
		if out := run(command, "-n", k.namespace); !strings.Contains(out, "pool") {
			t.Errorf("%s printed %s", command, out)
		}
	}
	if out := run("claim", "--help"); !strings.Contains(out, "  sandlot claim python\n") {
		t.Errorf("the help is\n%s", out)
	}
	if out := run("up", "--help"); strings.Contains(out, "--namespace") {
		t.Errorf("sandlot up has flags of clients:\n%s", out)
	}
}

// running is a plugin that runs.
type running struct {
	cmd            *exec.Cmd
	stdout, stderr safeBuffer
}

// start starts kubectl.
func (k *kubectl) start(t testing.TB, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	t.Cleanup(cancel)
	r := &running{cmd: exec.CommandContext(ctx, k.path, args...)}
	r.cmd.Env, r.cmd.Stdout, r.cmd.Stderr = k.env, &r.stdout, &r.stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// interrupt is Ctrl-C. kubectl has become the plugin: it is one process.
func (r *running) interrupt(t testing.TB) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// end waits for the end.
func (r *running) end(t testing.TB) (stdout, stderr string, code int) {
	t.Helper()
	err := r.cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return r.stdout.String(), r.stderr.String(), r.cmd.ProcessState.ExitCode()
}

// awaitClaim waits until a claim is stored.
func (k *kubectl) awaitClaim(t testing.TB, name string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := k.server.Client.AgentsV1alpha1().SandboxClaims(k.namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// safeBuffer may be read while it is written.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
