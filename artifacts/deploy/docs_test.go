// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// A snippet is a block of code of the docs. One that is indented, and not fenced, is divided at
// empty lines, because commands and files follow each other there.
type snippet struct {
	place string
	// language is yaml, sh, or what a fence says.
	language string
	text     string
}

const (
	inShell = "sh"
	inYAML  = "yaml"
)

var (
	fence = regexp.MustCompile("^```([a-z]*)(?: [a-z-]+)?$")
	// yamlLine is how a file in YAML begins: with a comment that has its name, or with a key.
	yamlLine = regexp.MustCompile(`^(# [a-z/]+\.yml|# [a-z/]+\.yaml|(- )?[A-Za-z]+:( .*)?)$`)
	// commandLine is how commands begin.
	commandLine = regexp.MustCompile(`^(?:bin/)?(make|git|go|kubectl|sandlot|sandlot-apiserver|helm|curl|kind|apt-get|export|umask|sed|sha256sum|ln)( |$)`)
)

// otherLanguages are those of blocks that are not looked into here: output and pictures, and
// expressions and programs that other tests run.
var otherLanguages = []string{"text", "mermaid", "js", "cel", "dockerfile"}

// snippets returns the blocks of the docs and of the files that lead to them.
func snippets(t *testing.T) []snippet {
	t.Helper()
	root := filepath.Join("..", "..")
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all []snippet
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "artifacts/example/README.md", "artifacts/deploy/chart/sandlot/README.md"} {
		names = append(names, filepath.Join(root, filepath.FromSlash(name)))
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, snippetsOf(t, filepath.Base(name), string(text))...)
	}
	if len(all) < 100 {
		t.Fatalf("the docs have %d blocks only", len(all))
	}
	return all
}

func snippetsOf(t *testing.T, page, text string) []snippet {
	t.Helper()
	var all []snippet
	var open, indented bool
	for i, line := range strings.Split(text, "\n") {
		match := fence.FindStringSubmatch(line)
		code, isIndented := strings.CutPrefix(line, "    ")
		switch {
		case open && line == "```":
			open = false
		case match != nil:
			open, indented = true, false
			all = append(all, snippet{place: fmt.Sprintf("%s:%d", page, i+1), language: match[1]})
		case open:
			all[len(all)-1].text += line + "\n"
		case !isIndented:
			indented = false
		case indented:
			all[len(all)-1].text += code + "\n"
		default:
			indented = true
			all = append(all, snippet{place: fmt.Sprintf("%s:%d", page, i+1), language: languageOf(code), text: code + "\n"})
		}
	}
	return all
}

// languageOf returns the language of an indented block by its first line, or "".
func languageOf(line string) string {
	switch {
	case commandLine.MatchString(line):
		return inShell
	case yamlLine.MatchString(line):
		return inYAML
	}
	return ""
}

// TestDocumentedLanguages: each block of the docs says what it is, and commands and Go can be parsed.
func TestDocumentedLanguages(t *testing.T) {
	for _, s := range snippets(t) {
		switch {
		case s.language == inShell:
			cmd := exec.CommandContext(t.Context(), "bash", "-n")
			cmd.Stdin = strings.NewReader(s.text)
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s: %v: %s\n%s", s.place, err, out, s.text)
			}
		case s.language == "go":
			statements := strings.ReplaceAll(s.text, "\n...\n", "\n")
			if _, err := parser.ParseFile(token.NewFileSet(), s.place, "package docs\nfunc _() {\n"+statements+"}\n", 0); err != nil {
				t.Errorf("%v\n%s", err, s.text)
			}
		case s.language != inYAML && !slices.Contains(otherLanguages, s.language):
			t.Errorf("%s is indented, and neither commands nor YAML, or has a fence without a language:\n%s", s.place, s.text)
		}
	}
}

// TestDocumentedManifests: YAML of the docs and of the examples can be parsed, and objects have
// only fields that their kind has.
func TestDocumentedManifests(t *testing.T) {
	known := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(known))
	install.Install(known)
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, known, known, json.SerializerOptions{Yaml: true, Strict: true})
	decoded := 0
	for _, s := range append(snippets(t), examples(t)...) {
		if s.language != inYAML {
			continue
		}
		reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(s.text)))
		for {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			var content any
			if err == nil {
				err = yaml.UnmarshalStrict(document, &content)
			}
			if err != nil {
				t.Errorf("%s: %v\n%s", s.place, err, document)
				break
			}
			kind := kindOf(content)
			if !known.Recognizes(kind) {
				continue
			}
			decoded++
			if _, _, err := decoder.Decode(document, &kind, nil); err != nil {
				t.Errorf("%s: %v\n%s", s.place, err, document)
			}
		}
	}
	if decoded < 50 {
		t.Errorf("the docs have %d objects only", decoded)
	}
}

// examples returns the manifests of the examples, and the pool of real nodes.
func examples(t *testing.T) []snippet {
	t.Helper()
	var all []snippet
	for _, pattern := range []string{"../example/*.yaml", "../example/*/*.yaml", "../example/*/*/*.yaml", "../../hack/cluster/*.yaml"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("there are no files like %s: %v", pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, snippet{place: name, language: inYAML, text: string(text)})
		}
	}
	return all
}

// kindOf returns the kind of an object. The docs leave the version out where they show a part of an
// object of ours.
func kindOf(content any) schema.GroupVersionKind {
	object, ok := content.(map[string]any)
	if !ok {
		return schema.GroupVersionKind{}
	}
	kind := (&unstructured.Unstructured{Object: object}).GroupVersionKind()
	if kind.Version == "" {
		kind.Group, kind.Version = v1alpha1.GroupName, v1alpha1.SchemeGroupVersion.Version
	}
	return kind
}

// ofRepository is a folder of the install in a kustomization: of this repository by its address and
// a version, or of a checkout.
var ofRepository = regexp.MustCompile(`"?(?:github\.com/sandlot-io/sandlot/|\bsandlot/|\b)(artifacts/deploy/[a-z0-9/-]+)(\?ref=v[0-9.]+")?`)

// fileName is the comment that a file of a block begins with.
var fileName = regexp.MustCompile(`(?m)^# ((?:[a-z]+/)?kustomization\.yaml)\n`)

// TestDocumentedKustomizations renders the kustomizations of the docs. What they take of this
// repository is taken from this checkout.
func TestDocumentedKustomizations(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	rendered := 0
	files := map[string]string{}
	for _, s := range snippets(t) {
		if !isKustomization(s) {
			continue
		}
		files[nameOf(s.text)] = s.text
		if files[kustomizationFile] == "" { // what follows is over it
			continue
		}
		rendered++
		its := files
		files = map[string]string{}
		t.Run(s.place, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			// What make image writes.
			write(t, filepath.Join(dir, "_output", "image", kustomizationFile), "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"+
				"images: [{name: ghcr.io/sandlot-io/sandlot, newTag: v9.9.9}]\n")
			for name, text := range its {
				folder := filepath.Join(dir, filepath.Dir(name))
				root, err := filepath.Rel(folder, filepath.Join(here, "..", ".."))
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(text, "resources:") && !strings.Contains(text, "namespace:") {
					text = "resources: [artifacts/deploy/default]\n" + text // it shows what is added
				}
				write(t, filepath.Join(folder, kustomizationFile), ofRepository.ReplaceAllString(text, root+"/$1"))
			}
			out, err := kustomize(t, dir)
			if err != nil || len(bytes.TrimSpace(out)) == 0 {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	if rendered < 10 {
		t.Errorf("the docs have %d kustomizations only", rendered)
	}
}

const kustomizationFile = "kustomization.yaml"

// isKustomization reports whether a snippet is a kustomization.
func isKustomization(s snippet) bool {
	var content map[string]any
	if s.language != inYAML || yaml.Unmarshal([]byte(s.text), &content) != nil || content["kind"] != nil {
		return false
	}
	return content["components"] != nil || content["resources"] != nil || content["patches"] != nil
}

func nameOf(text string) string {
	if match := fileName.FindStringSubmatch(text); match != nil {
		return match[1]
	}
	return kustomizationFile
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}
