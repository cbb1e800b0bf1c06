// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// content is everything of a set that reaches its sandboxes.
type content struct {
	// Set keeps the revisions of sets apart that are held under the same prefix.
	Set                  string                   `json:"set,omitempty"`
	Template             *runtime.RawExtension    `json:"template,omitempty"`
	VolumeClaimTemplates []runtime.RawExtension   `json:"volumeClaimTemplates,omitempty"`
	PersistentContents   []string                 `json:"persistentContents,omitempty"`
	Runtimes             []v1alpha1.RuntimeConfig `json:"runtimes,omitempty"`
	PauseStrategy        *v1alpha1.PauseStrategy  `json:"pauseStrategy,omitempty"`
	Service              *bool                    `json:"service,omitempty"`
	Network              string                   `json:"network,omitempty"`
}

// revisionBytes is how much of the SHA-256 of its content a revision is: 80 bits, too
// many to make another content of the same revision.
const revisionBytes = 10

// revisionEncoding makes of a sum what may stand in names and labels.
var revisionEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// revision returns the hash of the content.
func (c *content) revision() (string, error) {
	raw, err := canonical(c)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return revisionEncoding.EncodeToString(sum[:revisionBytes]), nil
}

// SetRevision is the hash of everything in a set that reaches its sandboxes, whose
// pod template is resolved, and of the set's name. Sandboxes carry it as their label
// template-hash; one that carries another was made from an older (or newer) state of
// the set and is replaced while unused. Nothing else has the same revision, so a
// reader of a SandboxTemplate that is said to hold it can check that: see
// HoldsRevision.
//
// How often and how fast sandboxes are made is no part of it: to scale a set is
// no reason to replace anything. Neither is where the template comes from, unless
// that decides which NetworkPolicy selects the pods: they have that from birth, by a
// label that never changes, and so need to be made anew for another one.
func SetRevision(set *v1alpha1.SandboxSet, resolved *Resolved) (string, error) {
	all := content{
		Set:                  set.Name,
		Template:             resolved.Template,
		VolumeClaimTemplates: resolved.WithVolumes(set.Spec.VolumeClaimTemplates),
		PersistentContents:   set.Spec.PersistentContents,
		Runtimes:             set.Spec.Runtimes,
		PauseStrategy:        set.Spec.PauseStrategy,
		Service:              resolved.Service,
	}
	if resolved.NetworkManaged {
		all.Network = v1alpha1.TemplateLabel(TemplateOf(set))
	}
	revision, err := all.revision()
	if err != nil {
		return "", fmt.Errorf("hashing the template of SandboxSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	return revision, nil
}

// revisionKey is what decides the content of a set whose pod template is resolved: the stored set, and what
// comes of what it refers to.
type revisionKey struct {
	set               types.UID
	generation        int64
	template, volumes [sha256.Size]byte
	service           string
	networkManaged    bool
}

// SetRevision is like the function of that name, and remembers the revisions of stored sets.
func (c *Cache) SetRevision(set *v1alpha1.SandboxSet, resolved *Resolved) (string, error) {
	if set.UID == "" || set.Generation == 0 { // it cannot be distinguished from what it becomes
		return SetRevision(set, resolved)
	}
	key := revisionKey{
		set: set.UID, generation: set.Generation,
		template: sha256.Sum256(resolved.Template.Raw), volumes: resolved.VolumeClaimsHash(), networkManaged: resolved.NetworkManaged,
	}
	if resolved.Service != nil {
		key.service = strconv.FormatBool(*resolved.Service)
	}
	if known, ok := c.revisions.Get(key); ok {
		return known.(string), nil
	}
	revision, err := SetRevision(set, resolved)
	if err == nil {
		c.revisions.Add(key, revision)
	}
	return revision, err
}

// HoldsRevision reports whether the content of a SandboxTemplate is that of a revision.
// Neither its name nor its owner tells: users who may write SandboxTemplates can give
// one any. Of the shorter revisions of earlier versions there is none: other content of
// the same hash is easy to find.
func HoldsRevision(template *v1alpha1.SandboxTemplate, revision string) bool {
	return !isShort(revision) && hasContent(template, revision)
}

// isShort reports whether a revision is one of an earlier version.
func isShort(revision string) bool {
	return len(revision) < revisionEncoding.EncodedLen(revisionBytes)
}

// mayHoldShort reports whether a SandboxTemplate may hold the short revision that a
// sandbox was made from by an earlier version: it was there before the sandbox, and its
// spec has not changed since. Content that is easy to forge is believed of no other.
func mayHoldShort(template *v1alpha1.SandboxTemplate, sandbox *v1alpha1.Sandbox) bool {
	return template.Generation == 1 && !template.CreationTimestamp.After(sandbox.CreationTimestamp.Time)
}

// onlyContent reports whether a spec has nothing but what a revision is the hash of.
func onlyContent(spec *v1alpha1.SandboxTemplateSpec) bool {
	return equality.Semantic.DeepEqual(spec, &v1alpha1.SandboxTemplateSpec{
		EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{Template: spec.Template, VolumeClaimTemplates: spec.VolumeClaimTemplates},
		PauseStrategy:           spec.PauseStrategy, PersistentContents: spec.PersistentContents, Runtimes: spec.Runtimes, Service: spec.Service,
	})
}

// hasContent reports whether the hash of the content of a SandboxTemplate is a revision.
func hasContent(template *v1alpha1.SandboxTemplate, revision string) bool {
	spec := &template.Spec
	if spec.Template == nil || !onlyContent(spec) {
		return false
	}
	held := content{
		Set:                  template.Labels[v1alpha1.LabelSandboxPool],
		Template:             spec.Template,
		VolumeClaimTemplates: spec.VolumeClaimTemplates,
		PersistentContents:   spec.PersistentContents,
		Runtimes:             spec.Runtimes,
		PauseStrategy:        spec.PauseStrategy,
		Service:              spec.Service,
	}
	hashOf := held.revision
	if isShort(revision) {
		held.Set = ""
		hashOf = func() (string, error) { return hash(&held) }
	}
	// The template that the set refers to counts if that has a NetworkPolicy, which is
	// not known here.
	for _, held.Network = range []string{"", template.Labels[v1alpha1.LabelSandboxTemplate]} {
		if got, err := hashOf(); err == nil && got == revision {
			return true
		}
	}
	return false
}

// SandboxRevision is the hash of a sandbox's own pod template, its
// status.updateRevision. Of one that refers to a template it is the hash of the
// reference, as with OpenKruise Agents: an edit of the template is none of the
// sandboxes that run.
func SandboxRevision(sandbox *v1alpha1.Sandbox) (string, error) {
	var revision string
	var err error
	if sandbox.Spec.Template == nil && sandbox.Spec.TemplateRef != nil {
		revision, err = hash(sandbox.Spec.TemplateRef)
	} else {
		revision, err = TemplateRevision(sandbox.Spec.Template)
	}
	if err != nil {
		return "", fmt.Errorf("revision of Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	return revision, nil
}

// StatusAtBirth is the status with which a sandbox comes into being, regardless of who
// makes it: Pending, like a Pod, and of its own spec. So no client sees the empty phase,
// which counts as paused on a sandbox without a set, or a revision that is not there
// yet. Of a sandbox whose template cannot be read there is no revision.
func StatusAtBirth(sandbox *v1alpha1.Sandbox) v1alpha1.SandboxStatus {
	revision, err := SandboxRevision(sandbox)
	if err != nil {
		revision = "" // validation says what is wrong
	}
	return v1alpha1.SandboxStatus{
		Phase:              v1alpha1.SandboxPending,
		ObservedGeneration: sandbox.Generation,
		UpdateRevision:     revision,
	}
}

// TemplateRevision is the hash of a pod template.
func TemplateRevision(template *runtime.RawExtension) (string, error) {
	revision, err := hash(template)
	if err != nil {
		return "", fmt.Errorf("hashing a pod template: %w", err)
	}
	return revision, nil
}

// hash is FNV-32a over canonical JSON, in letters that spell no words. It tells states
// of one object apart, and nothing more: to find another value of the same hash is easy.
func hash(value any) (string, error) {
	raw, err := canonical(value)
	if err != nil {
		return "", err
	}
	sum := fnv.New32a()
	_, _ = sum.Write(raw)
	return rand.SafeEncodeString(strconv.FormatUint(uint64(sum.Sum32()), 10)), nil
}

// canonical is a value as JSON. Templates are kept as the user sent them, so the order
// of keys and the white space must not count: the value is decoded and encoded again.
// Numbers stay as written, since float64 would make large ones equal.
func canonical(value any) ([]byte, error) {
	if template, ok := value.(*runtime.RawExtension); ok && template != nil && IsCanonical(template.Raw) {
		return template.Raw, nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return recode(raw)
}

// recode decodes JSON and encodes it again.
func recode(raw []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var generic any
	if err := decoder.Decode(&generic); err != nil {
		return nil, err
	}
	return json.Marshal(generic)
}

// RefersToRevision reports whether a sandbox refers to the SandboxTemplate of its own
// revision, by name: that is the sandbox of a set with templateRef, as it was made.
func RefersToRevision(sandbox *v1alpha1.Sandbox) bool {
	ref, revision := sandbox.Spec.TemplateRef, sandbox.Labels[v1alpha1.LabelTemplateHash]
	if ref == nil || revision == "" || !strings.HasSuffix(ref.Name, "-"+revision) {
		return false
	}
	kind, err := kindOf(ref)
	return err == nil && kind == v1alpha1.TemplateKindSandboxTemplate
}

// unpatched is the name of the template that a set takes as it is, or empty where the set
// patches it or has one of its own.
func unpatched(set *v1alpha1.SandboxSet) string {
	if spec := &set.Spec; spec.Template == nil && spec.TemplateRef != nil && spec.Patch == nil {
		return spec.TemplateRef.Name
	}
	return ""
}

// CurrentRevision is status.currentRevision of a set at a revision: the name of the
// template that the set takes as it is, as with OpenKruise Agents, and else the name of
// the SandboxTemplate that holds the revision.
func CurrentRevision(set *v1alpha1.SandboxSet, revision string) string {
	return cmp.Or(unpatched(set), RevisionName(set, revision))
}

// RevisionName is the name of the SandboxTemplate that holds a revision of a set. It
// begins with the name of the template that the set takes as it is, and else with the
// set's own. Both names have 63 characters at most, so this one is short enough.
func RevisionName(set *v1alpha1.SandboxSet, revision string) string {
	return cmp.Or(unpatched(set), set.Name) + "-" + revision
}

// HolderOf is the name of the SandboxTemplate that holds the revision which a set's
// status names, or empty where it names none.
func HolderOf(status *v1alpha1.SandboxSetStatus) string {
	suffix := "-" + status.UpdateRevision
	if status.CurrentRevision == "" || strings.HasSuffix(status.CurrentRevision, suffix) {
		return status.CurrentRevision
	}
	return status.CurrentRevision + suffix
}

// PossibleHolders are the names which the SandboxTemplate that holds the revision of a sandbox
// may have: whether its set had a patch is not known any more once it is claimed. It has
// none if it was in no pool.
func PossibleHolders(sandbox *v1alpha1.Sandbox) []string {
	labels := sandbox.Labels
	set, revision := labels[v1alpha1.LabelSandboxPool], labels[v1alpha1.LabelTemplateHash]
	if set == "" || revision == "" {
		return nil
	}
	names := []string{set + "-" + revision}
	if template := labels[v1alpha1.LabelSandboxTemplate]; template != "" && template != set {
		names = append(names, template+"-"+revision)
	}
	return names
}

// IsRevision reports whether a template is kept as a revision of a set. That a set owns it
// is not enough: users can say that of a template of theirs. Whether its content is that
// of the revision is for HoldsRevision.
func IsRevision(template *v1alpha1.SandboxTemplate) bool {
	owner := metav1.GetControllerOfNoCopy(template)
	if owner == nil || v1alpha1.OwnerKind(owner) != "SandboxSet" {
		return false
	}
	revision := template.Labels[v1alpha1.LabelTemplateHash]
	return revision != "" && strings.HasSuffix(template.Name, "-"+revision)
}

// NewHolder makes the SandboxTemplate that holds a revision of a set, owned by
// it: everything that the revision is the hash of. It is the caller's to keep and
// change.
func NewHolder(set *v1alpha1.SandboxSet, revision string, resolved *Resolved) *v1alpha1.SandboxTemplate {
	spec := set.Spec.DeepCopy()
	materialized := &v1alpha1.SandboxTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       set.Namespace,
			Name:            RevisionName(set, revision),
			Labels:          map[string]string{v1alpha1.LabelSandboxPool: set.Name, v1alpha1.LabelTemplateHash: revision},
			OwnerReferences: []metav1.OwnerReference{ownedBySet(set)},
		},
		Spec: v1alpha1.SandboxTemplateSpec{
			EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
				Template:             resolved.Template.DeepCopy(),
				VolumeClaimTemplates: resolved.copiedVolumes(spec.VolumeClaimTemplates),
			},
			PauseStrategy:      spec.PauseStrategy,
			PersistentContents: spec.PersistentContents,
			Runtimes:           spec.Runtimes,
			Service:            resolved.service(),
		},
	}
	setLabelTemplate(materialized, TemplateOf(set))
	return materialized
}

// AtRevision is a set as it was at the revision that a template made by
// NewHolder holds, for NewSandbox to make more of its sandboxes. It shares its
// parts with both and is not to be changed.
func AtRevision(set *v1alpha1.SandboxSet, materialized *v1alpha1.SandboxTemplate) (*v1alpha1.SandboxSet, *Resolved) {
	then := *set
	then.Spec.VolumeClaimTemplates = materialized.Spec.VolumeClaimTemplates
	then.Spec.PauseStrategy = materialized.Spec.PauseStrategy
	then.Spec.PersistentContents = materialized.Spec.PersistentContents
	then.Spec.Runtimes = materialized.Spec.Runtimes
	if name := materialized.Labels[v1alpha1.LabelSandboxTemplate]; name != "" {
		// Its pods are not those of another template that the set refers to by now.
		then.Spec.Template, then.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: name}
	}
	return &then, &Resolved{Template: materialized.Spec.Template, Service: materialized.Spec.Service, holder: materialized.Name}
}
