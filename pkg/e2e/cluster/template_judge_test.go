// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const (
	judgedPod = `{"containers":[{"name":"main","image":"busybox:1"%s}]%s}`

	tooMuch   = `,"resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}`
	unmounted = `,"volumeMounts":[{"name":"data","mountPath":"/data"}]`
)

// judgedSpec is a pod with something added to its container, and to itself.
func judgedSpec(container, pod string) string { return fmt.Sprintf(judgedPod, container, pod) }

func templateOf(spec string) string {
	return fmt.Sprintf(`{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxTemplate","metadata":{"name":"judged"},"spec":{"template":{"spec":%s}}}`, spec)
}

func setOf(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxSet","metadata":{"name":%q},"spec":{"replicas":0,%s}}`, name, spec)
}

// applyEach applies an object with kubectl in each of its ways, at last for good.
// All must end alike and say the same, which it returns.
func applyEach(t *testing.T, ns, object string, refused bool) string {
	t.Helper()
	var before string
	for i, flags := range [][]string{{"--dry-run=server"}, {"--dry-run=server", "--server-side", "--force-conflicts"}, {}} {
		args := append([]string{"--namespace=" + ns, "apply", "-f", "-"}, flags...)
		_, said, err := plane.Kubectl(t.Context(), "", strings.NewReader(object), args...)
		if (err != nil) != refused {
			t.Fatalf("kubectl apply %v: %v, %s", flags, err, said)
		}
		if i > 0 && said != before {
			t.Errorf("kubectl apply %v says\n%s\nand before that\n%s", flags, said, before)
		}
		before = said
	}
	t.Log(before)
	return before
}

// TestTemplatesAreJudged lets kube-apiserver say what a pod may be, when a template
// or a set is written. What only it knows is named by the field of the template.
func TestTemplatesAreJudged(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	kubectl(t, ns, strings.Replace(templateOf(judgedSpec("", "")), "judged", "base", 1), "create", "-f", "-")
	if _, err := c.kube.CoreV1().PodTemplates(ns).Create(t.Context(), &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "core"},
		Template:   corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox:1"}}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ref := func(name, kind, container string) string {
		return fmt.Sprintf(`"templateRef":{"name":%q,"kind":%q},"patch":{"spec":{"containers":[{"name":"main"%s}]}}`, name, kind, container)
	}
	for name, tc := range map[string]struct{ object, want string }{
		"quantity":            {templateOf(judgedSpec(tooMuch, "")), `spec.template.spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`},
		"mount":               {templateOf(judgedSpec(unmounted, "")), `spec.template.spec.containers[0].volumeMounts[0].name: Not found: "data"`},
		"inline in a set":     {setOf("bad", `"template":{"spec":`+judgedSpec(tooMuch, "")+`}`), "spec.template.spec.containers[0].resources.requests: Invalid value"},
		"patch":               {setOf("bad", ref("base", "", tooMuch)), `spec.patch.spec.containers[0].resources.requests: Invalid value: "2"`},
		"patch of the core":   {setOf("bad", ref("core", "PodTemplate", unmounted)), "spec.patch.spec.containers[0].volumeMounts[0].name: Not found"},
		"patch without sense": {setOf("bad", `"templateRef":{"name":"base"},"patch":{"spec":{"containers":[{"name":"other"}]}}`), `it names container "other", which spec.containers of the template does not have`},
	} {
		t.Run(name, func(t *testing.T) {
			if said := applyEach(t, ns, tc.object, true); !strings.Contains(said, tc.want) {
				t.Errorf("kubectl says %q, want %q", said, tc.want)
			}
		})
	}
	for name, object := range map[string]string{
		"template": templateOf(judgedSpec("", "")), "patched": setOf("patched", ref("base", "", `,"image":"busybox:2"`)),
		"core":          setOf("core", ref("core", "PodTemplate", `,"image":"busybox:2"`)),
		"with a volume": setOf("volume", `"template":{"spec":`+judgedSpec(unmounted, "")+`},"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]`),
	} {
		t.Run("good: "+name, func(t *testing.T) {
			if said := applyEach(t, ns, object, false); strings.Contains(said, "Warning") {
				t.Errorf("kubectl says %q", said)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		const want = "Warning: spec.templateRef: SandboxTemplate later: not found; the set stays empty until it exists"
		if said := applyEach(t, ns, setOf("early", `"templateRef":{"name":"later"}`), false); !strings.Contains(said, want) {
			t.Errorf("kubectl says %q, want %q", said, want)
		}
	})
	// A template that changes under a set's feet.
	t.Run("users", func(t *testing.T) {
		const want = "Warning: SandboxSet patched cannot follow this change, and keeps its sandboxes as they are: SandboxTemplate shared: " +
			`the patch cannot be applied: it names container "main", which spec.containers of the template does not have (there is other)`
		set := setOf("patched", `"templateRef":{"name":"shared"},"patch":{"spec":{"containers":[{"name":"main","env":[]}]}}`)
		shared := strings.Replace(templateOf(judgedSpec("", "")), "judged", "shared", 1)
		kubectl(t, ns, shared, "apply", "-f", "-")
		kubectl(t, ns, set, "apply", "-f", "-")
		other := strings.Replace(shared, `"name":"main"`, `"name":"other"`, 1)
		for _, args := range [][]string{{"apply", "--dry-run=server", "-f", "-"}, {"apply", "-f", "-"}} {
			_, said, err := plane.Kubectl(t.Context(), "", strings.NewReader(other), append(args, "--namespace="+ns)...)
			if err != nil || !strings.Contains(said, want) {
				t.Errorf("kubectl %v: %v, %q, want %q", args, err, said, want)
			}
		}
	})
}

// TestClusterRefusesARevision: a change that is good for the template, but not with
// the patch of a set, as only the cluster knows. The set keeps what it has, refills
// from it, and says so.
func TestClusterRefusesARevision(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	shared := func(cpu string) string {
		return strings.Replace(templateOf(judgedSpec(`,"resources":{"requests":{"cpu":"`+cpu+`"}}`, "")), "judged", "shared", 1)
	}
	kubectl(t, ns, shared("1"), "apply", "-f", "-")
	kubectl(t, ns, `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxSet","metadata":{"name":"pool"},"spec":{"replicas":2,`+
		`"templateRef":{"name":"shared"},"patch":{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"1"}}}]}}}}`, "apply", "-f", "-")
	expect.FullPool(t, c, ns, "pool", 2)
	before, err := c.SandboxSets(ns).Get(t.Context(), "pool", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	condition := func(status metav1.ConditionStatus, reason, message string) {
		t.Helper()
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			set, err := c.SandboxSets(ns).Get(ctx, "pool", metav1.GetOptions{})
			if err != nil {
				return err
			}
			got := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.SetConditionTemplateResolved)
			if got == nil || got.Status != status || got.Reason != reason || !strings.Contains(got.Message, message) {
				return fmt.Errorf("condition %+v", got)
			}
			return nil
		})
	}
	condition(metav1.ConditionTrue, v1alpha1.ReasonResolved, "")

	kubectl(t, ns, shared("2"), "apply", "-f", "-")
	condition(metav1.ConditionFalse, v1alpha1.ReasonInvalidTemplate, "must be less than or equal to cpu limit of 1")
	c.claim(t, ns, builders.Claim("one", 1))
	expect.FullPool(t, c, ns, "pool", 2) // refilled
	after, err := c.SandboxSets(ns).Get(t.Context(), "pool", metav1.GetOptions{})
	if err != nil || after.Status.UpdateRevision != before.Status.UpdateRevision {
		t.Errorf("%v: from revision %s to %s", err, before.Status.UpdateRevision, after.Status.UpdateRevision)
	}

	kubectl(t, ns, shared("500m"), "apply", "-f", "-")
	condition(metav1.ConditionTrue, v1alpha1.ReasonResolved, "")
	expect.FullPool(t, c, ns, "pool", 2)
}

// TestUnknownFieldsAreKept: a field of a Kubernetes that is newer than all of this
// is kept, and the user hears that this cluster does not know it.
func TestUnknownFieldsAreKept(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	said := applyEach(t, ns, templateOf(judgedSpec("", `,"fromTheFuture":{"a":9007199254740993}`)), false)
	if want := `Warning: spec.template: unknown field "spec.fromTheFuture"`; !strings.Contains(said, want) {
		t.Errorf("kubectl says %q, want %q", said, want)
	}
	stored, err := c.SandboxTemplates(ns).Get(t.Context(), "judged", metav1.GetOptions{})
	if err != nil || !strings.Contains(string(stored.Spec.Template.Raw), `"fromTheFuture":{"a":9007199254740993}`) {
		t.Errorf("stored: %v, %v", stored, err)
	}
}

// TestRefusedForNow: what a cluster refuses today, for reasons that are not in the
// template, it may take tomorrow.
func TestRefusedForNow(t *testing.T) {
	t.Parallel()
	c := admin(t)
	t.Run("pod security", func(t *testing.T) {
		ns := namespace(t)
		patch := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
		if _, err := c.kube.CoreV1().Namespaces().Patch(t.Context(), ns, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitSaid(t, ns, "privileged", "Warning: spec.template: the cluster refuses its pods for now: ", `violates PodSecurity "restricted:latest"`)
	})
	t.Run("quota", func(t *testing.T) {
		ns := namespace(t)
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}}
		quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
		if _, err := c.kube.CoreV1().ResourceQuotas(ns).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitSaid(t, ns, "much", "Warning: spec.template: the cluster refuses its pods for now: ", "exceeded quota: none")
		// A set says so too, until one of its pods is taken.
		const set = "doubtful"
		kubectl(t, ns, strings.Replace(setOf(set, `"template":{"spec":`+judgedSpec(`,"tty":true`, "")+`}`), `"replicas":0`, `"replicas":1`, 1), "create", "-f", "-")
		c.awaitAccepted(t, ns, set, metav1.ConditionUnknown, v1alpha1.ReasonWarned, "exceeded quota: none")
		if err := c.kube.CoreV1().ResourceQuotas(ns).Delete(t.Context(), quota.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.awaitAccepted(t, ns, set, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")
	})
}

// awaitAccepted waits for what a set says of the cluster's view of its pods.
func (c *clients) awaitAccepted(t *testing.T, ns, name string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		set, err := c.SandboxSets(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		told := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.SetConditionTemplateAccepted)
		if told == nil || told.Status != status || told.Reason != reason || !strings.Contains(told.Message, message) {
			return fmt.Errorf("SandboxSet %s says %+v, want %s, %s, %q", name, told, status, reason, message)
		}
		return nil
	})
}

// awaitSaid applies templates until kubectl says all of want: admission hears of
// what it heeds with a delay, and a verdict is remembered.
func awaitSaid(t *testing.T, ns, name string, want ...string) {
	t.Helper()
	tries := 0
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		tries++
		object := templateOf(fmt.Sprintf(`{"hostNetwork":true,"containers":[{"name":"main","image":"busybox:%d"}]}`, tries))
		_, said, err := plane.Kubectl(ctx, "", strings.NewReader(strings.Replace(object, "judged", name, 1)), "--namespace="+ns, "apply", "-f", "-")
		if err != nil {
			return err
		}
		for _, text := range want {
			if !strings.Contains(said, text) {
				return fmt.Errorf("kubectl says %q, want %q", said, text)
			}
		}
		t.Log(said)
		return nil
	})
}

// TestVerdictsAreRemembered: the same pod is asked about once, regardless of who
// it is for, and what does not change the pods asks nothing.
func TestVerdictsAreRemembered(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	server := admin(t).direct(t, 0) // each has a memory of its own
	pod := &runtime.RawExtension{Raw: []byte(`{"spec":` + judgedSpec("", "") + `}`)}
	for i := range 3 {
		template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("t%d", i)}}
		template.Spec.Template = pod
		if _, err := server.SandboxTemplates(ns).Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	set := builders.Set("pool", 0)
	set.Spec.Template = pod
	set, err := server.SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	set.Labels = map[string]string{"a": "b"}
	if _, err := server.SandboxSets(ns).Update(t.Context(), set, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		t.Fatal(err)
	}
	// The controllers keep the set's template, by whatever server they reach.
	asked := slices.DeleteFunc(podRequests(t, plane.AuditLog(), ns), func(e auditv1.Event) bool { return !strings.Contains(e.RequestURI, "dryRun=") })
	if len(asked) == 0 || len(asked) > len(sandlot.APIServers()) {
		t.Errorf("asked %d times for one pod", len(asked))
	}
	for _, event := range asked {
		if event.User.Username != "system:serviceaccount:"+controlplane.Namespace+":sandlot-apiserver" {
			t.Errorf("asked as %s", event.User.Username)
		}
	}
}

// podRequests returns what was asked of pods in a namespace, or in all, by the audit log of
// a kube-apiserver.
func podRequests(t *testing.T, log, ns string) []auditv1.Event {
	t.Helper()
	file, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var events []auditv1.Event
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event auditv1.Event
		if !bytes.Contains(lines.Bytes(), []byte(`/pods`)) || json.Unmarshal(lines.Bytes(), &event) != nil || event.Stage != auditv1.StageResponseComplete || event.ObjectRef == nil {
			continue
		}
		if (ns == "" || event.ObjectRef.Namespace == ns) && event.ObjectRef.Resource == "pods" {
			events = append(events, event)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return events
}

// TestOnlyDryRuns: what our API server may ask about, it may not do.
func TestOnlyDryRuns(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	path, err := plane.ServiceAccountKubeconfig(t.Context(), controlplane.Namespace, "sandlot-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := tryKubectl(t, path, ns, "", "run", "pod", "--image=busybox:1", "--dry-run=server"); err != nil {
		t.Errorf("dry run: %v, %s", err, out)
	}
	if out, err := tryKubectl(t, path, ns, "", "run", "pod", "--image=busybox:1"); err == nil || !strings.Contains(err.Error(), "sandlot-apiserver may create pods in a dry run only") {
		t.Errorf("got %v, %s", err, out)
	}
	// No other user is held to that.
	kubectl(t, ns, "", "run", "pod", "--image=busybox:1")
}

// checkUnjudged requires that templates are taken while the cluster cannot be
// asked, with a warning.
func (s *site) checkUnjudged(t *testing.T, installed *controlplane.Sandlot) {
	t.Helper()
	config, err := installed.Direct(0, s.Config())
	if err != nil {
		t.Fatal(err)
	}
	var said warned
	config = rest.CopyConfig(config)
	config.WarningHandlerWithContext = &said
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "unjudged"}}
	template.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"spec":` + judgedSpec(tooMuch, "") + `}`)}
	if _, err := clientsFor(t, config).SandboxTemplates(metav1.NamespaceDefault).Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
		t.Errorf("creating a template without the cluster: %v", err)
	}
	if !slices.ContainsFunc(said.texts, func(text string) bool {
		return strings.HasPrefix(text, "spec.template: the cluster could not be asked: ")
	}) {
		t.Errorf("warnings: %q", said.texts)
	}
}

// warned keeps warnings.
type warned struct {
	mu    sync.Mutex
	texts []string
}

func (w *warned) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}
