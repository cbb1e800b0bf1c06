// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
	"golang.org/x/mod/modfile"
	"sigs.k8s.io/yaml"
)

const testVersion = "v0.0.1"

// keyPair writes a private key, and returns its file and the public one. Signatures of Ed25519 are
// the same each time.
func keyPair(t *testing.T) (private string, key ed25519.PublicKey) {
	t.Helper()
	key, secret, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(secret)
	private = filepath.Join(t.TempDir(), "key.pem")
	if err := errors.Join(err, os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)); err != nil {
		t.Fatal(err)
	}
	return private, key
}

// clone is a repository with what this one has, and the version of the test in its changelog
// and in its install.
func clone(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sandlot")
	git := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// This one may belong to another user.
	archive := filepath.Join(t.TempDir(), "head.tar")
	git("-c", "safe.directory=*", "-C", root, "archive", "--format=tar", "-o", archive, "HEAD")
	if out, err := exec.Command("tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	git("-C", dir, "init", "-q")
	git("-C", dir, "add", "--all")
	edit(t, filepath.Join(dir, "CHANGELOG.md"), "## Unreleased\n", "## Unreleased\n\n## "+testVersion+"\n")
	edit(t, filepath.Join(dir, chartAbout), strings.TrimPrefix(chartVersion(t), "v"), strings.TrimPrefix(testVersion, "v"))
	git("-C", dir, "-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false", "commit", "-qam", "release")
	return dir
}

// edit replaces a text wherever it is in a file, which must have it.
func edit(t *testing.T, file, from, to string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(from)) {
		t.Fatalf("%s has no %q", file, from)
	}
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte(from), []byte(to)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// chartVersion is the version that the chart names.
func chartVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", chartAbout))
	if err != nil {
		t.Fatal(err)
	}
	return string(regexp.MustCompile(`appVersion: (\S+)`).FindSubmatch(text)[1])
}

// TestRelease makes a release twice, from two clones of one commit, and looks at it with other
// means than it was made with.
func TestRelease(t *testing.T) {
	private, key := keyPair(t)
	root := clone(t)
	platform := "linux/" + runtime.GOARCH
	var outs []string
	for range 2 {
		out := filepath.Join(t.TempDir(), "out")
		outs = append(outs, out)
		err := run(t.Context(), []string{
			"-root", root, "-o", out, "-version", testVersion, "-registry", "registry.example/team",
			"-platforms", platform, "-program-platforms", platform, "-key", private,
		}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(t.TempDir(), "again")
		if out, err := exec.Command("git", "clone", "-q", root, other).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		root = other
	}
	dir := outs[0]
	files := read(t, dir)
	t.Run("the same again", func(t *testing.T) {
		again := read(t, outs[1])
		for name := range files {
			if !bytes.Equal(files[name], again[name]) {
				t.Errorf("%s differs", name)
			}
		}
		if len(files) != len(again) || len(files) < 14 {
			t.Errorf("%d files, and %d", len(files), len(again))
		}
	})
	t.Run("signature", func(t *testing.T) {
		signed, err := base64.StdEncoding.DecodeString(string(files[signatureFile]))
		if err != nil || !ed25519.Verify(key, files[checksumsFile], signed) {
			t.Errorf("the signature is wrong: %v", err)
		}
		payload := opened(t, files[provenanceFile], key)
		var made struct {
			Subject []struct {
				Name   string
				Digest map[string]string
			}
			Predicate struct {
				BuildDefinition struct {
					ResolvedDependencies []struct{ Digest map[string]string }
				}
			}
		}
		if err := json.Unmarshal(payload, &made); err != nil {
			t.Fatal(err)
		}
		head, err := exec.Command("git", "-C", root, "rev-parse", "HEAD").Output()
		if deps := made.Predicate.BuildDefinition.ResolvedDependencies; err != nil || len(deps) != 1 || deps[0].Digest["gitCommit"] != strings.TrimSpace(string(head)) {
			t.Errorf("it was made of %v, want %s", deps, head)
		}
		for _, subject := range made.Subject {
			if content, ok := files[subject.Name]; ok && digestOf(content) != subject.Digest["sha256"] {
				t.Errorf("the digest of %s is wrong", subject.Name)
			}
		}
		if len(made.Subject) < len(files)-3+4 { // except for provenance, checksums and signature; with the images
			t.Errorf("it is about %d things only", len(made.Subject))
		}
	})
	t.Run("manifests", func(t *testing.T) { checkManifests(t, files) })
	t.Run("chart", func(t *testing.T) { checkChart(t, dir, files) })
	t.Run("bills", func(t *testing.T) { checkBills(t, files) })
	t.Run("plugin", func(t *testing.T) {
		var p struct {
			Spec struct {
				Platforms []struct{ URI, SHA256 string }
			}
		}
		if err := yaml.Unmarshal(files[pluginFile], &p); err != nil || len(p.Spec.Platforms) != 1 {
			t.Fatalf("%s: %v", files[pluginFile], err)
		}
		one := p.Spec.Platforms[0]
		if archive := files[filepath.Base(one.URI)]; digestOf(archive) != one.SHA256 {
			t.Errorf("%s is not the archive of %s", one.SHA256, one.URI)
		}
	})
	t.Run("checksums", func(t *testing.T) {
		check := exec.Command("sha256sum", "--check", "--strict", checksumsFile)
		check.Dir = dir
		if out, err := check.CombinedOutput(); err != nil || bytes.Count(out, []byte(": OK\n")) != len(files)-2 {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// opened is what an envelope holds, if the key has signed it.
func opened(t *testing.T, text []byte, key ed25519.PublicKey) []byte {
	t.Helper()
	var envelope dsse.Envelope
	if err := json.Unmarshal(text, &envelope); err != nil || envelope.PayloadType != payloadType {
		t.Fatalf("%v\n%s", err, text)
	}
	verifier, err := dsse.NewEnvelopeVerifier(signedBy{key})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verifier.Verify(t.Context(), &envelope); err != nil {
		t.Errorf("the signature of the provenance is wrong: %v", err)
	}
	payload, err := envelope.DecodeB64Payload()
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// signedBy verifies by the standard library, which does not sign here.
type signedBy struct{ key ed25519.PublicKey }

func (s signedBy) Public() crypto.PublicKey { return s.key }

func (s signedBy) KeyID() (string, error) { return "", nil }

func (s signedBy) Verify(_ context.Context, data, sig []byte) error {
	if !ed25519.Verify(s.key, data, sig) {
		return errors.New("it is not signed by this key")
	}
	return nil
}

// TestCosignKey signs by a key as cosign makes them.
func TestCosignKey(t *testing.T) {
	private, key, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), cryptoutils.StaticPasswordFunc([]byte("secret")))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(private)
	block.Type = "ENCRYPTED COSIGN PRIVATE KEY"
	sums := []byte("0  file\n")
	o, file := &options{out: t.TempDir()}, filepath.Join(t.TempDir(), "cosign.key")
	if err := errors.Join(os.WriteFile(file, pem.EncodeToMemory(block), 0o600), os.WriteFile(o.file(checksumsFile), sums, 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("COSIGN_PASSWORD", "wrong")
	if _, err := loadKey(file); err == nil {
		t.Error("any password opens the key")
	}
	t.Setenv("COSIGN_PASSWORD", "secret")
	if o.signer, err = loadKey(file); err != nil {
		t.Fatal(err)
	}
	if err := sign(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	encoded, err := os.ReadFile(o.file(signatureFile))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := base64.StdEncoding.DecodeString(string(encoded))
	block, _ = pem.Decode(key)
	public, parseErr := x509.ParsePKIXPublicKey(block.Bytes)
	if err := errors.Join(err, parseErr); err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(sums)
	if !ecdsa.VerifyASN1(public.(*ecdsa.PublicKey), digest[:], signed) {
		t.Error("the signature is wrong")
	}
}

// read reads the files of a folder.
func read(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		if files[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// checkManifests: whatever they run is named by digest, and is in the layout.
func checkManifests(t *testing.T, files map[string][]byte) {
	t.Helper()
	for name := range installs {
		images := imagesOf(files[name])
		if len(images) < 2 || name == "install.yaml" && !bytes.Contains(files[name], []byte("image: registry.example/team/sandlot-etcd@sha256:")) {
			t.Errorf("%s has %d images", name, len(images))
		}
		for _, image := range images {
			checkImage(t, name, image, files)
		}
		checkOrder(t, name, files[name])
	}
}

// checkOrder: a file can be applied at once, which is done in its order.
func checkOrder(t *testing.T, file string, manifests []byte) {
	t.Helper()
	namespaces, inOne := map[string]bool{"default": true, "kube-system": true}, 0
	for document := range bytes.SplitSeq(manifests, []byte("\n---\n")) {
		var object struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		if err := yaml.Unmarshal(document, &object); err != nil {
			t.Fatal(err)
		}
		switch {
		case object.Kind == "Namespace":
			namespaces[object.Metadata.Name] = true
		case object.Metadata.Namespace != "":
			inOne++
			if !namespaces[object.Metadata.Namespace] {
				t.Errorf("%s: %s %s comes before its namespace, %s", file, object.Kind, object.Metadata.Name, object.Metadata.Namespace)
			}
		}
	}
	if inOne < 5 {
		t.Errorf("%s has %d objects in a namespace", file, inOne)
	}
}

// imagesOf are the images that manifests run.
func imagesOf(manifests []byte) (images []string) {
	for _, found := range regexp.MustCompile(`(?m)^\s*(?:- )?image: "?([^"\s]*)"?$`).FindAllSubmatch(manifests, -1) {
		images = append(images, string(found[1]))
	}
	return images
}

// checkImage: it is of the release, by digest.
func checkImage(t *testing.T, file, image string, files map[string][]byte) {
	t.Helper()
	_, digest, _ := strings.Cut(image, "@")
	if !strings.HasPrefix(image, "registry.example/team/sandlot") || digest == "" || !bytes.Contains(files[imagesFile], []byte(digest)) {
		t.Errorf("%s runs %s", file, image)
	}
}

// checkChart: Helm reads the package, and it runs images of the release, by digest.
func checkChart(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	found, err := exec.Command("../tool.sh", "helm").Output()
	if err != nil {
		t.Fatal(err)
	}
	helm := func(args ...string) []byte {
		t.Helper()
		cmd := exec.Command(strings.TrimSpace(string(found)), args...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("helm %v: %v: %s", args, err, &stderr)
		}
		return out
	}
	chart := filepath.Join(dir, "sandlot-"+strings.TrimPrefix(testVersion, "v")+".tgz")
	var is struct{ Name, Version, AppVersion string }
	if err := yaml.Unmarshal(helm("show", "chart", chart), &is); err != nil || is.Name != "sandlot" || "v"+is.Version != testVersion || is.AppVersion != testVersion {
		t.Errorf("it is %+v: %v", is, err)
	}
	rendered := helm("template", "sandlot", chart, "--set", "gateway.enabled=true")
	images := imagesOf(rendered)
	if len(images) < 5 {
		t.Errorf("it has the images %q", images)
	}
	for _, image := range images {
		checkImage(t, chart, image, files)
	}
}

// versionOf is what lets each program say its version.
var versionOf = map[string]string{"sandlot": "version", "kubectl-sandlot": "--version"}

// checkBills: they name what the programs say themselves that they are made of.
func checkBills(t *testing.T, files map[string][]byte) {
	t.Helper()
	for _, name := range released {
		stem := name + "_" + testVersion + "_linux_" + runtime.GOARCH
		doc, err := spdxjson.Read(bytes.NewReader(files[stem+".spdx.json"]))
		if err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(program, inArchive(t, files[stem+".tar.gz"], name), 0o755); err != nil {
			t.Fatal(err)
		}
		said, err := exec.Command(program, versionOf[name]).CombinedOutput()
		if err != nil || !bytes.Contains(said, []byte(testVersion)) {
			t.Errorf("%s version: %s, %v", name, said, err)
		}
		out, err := exec.Command("go", "version", "-m", program).Output()
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]bool{}
		for _, p := range doc.Packages {
			have[p.PackageName+"@"+p.PackageVersion] = true
		}
		n := 0
		for _, found := range regexp.MustCompile(`(?m)^\t(?:dep|=>)\t(\S+)\t(v\S+)\t`).FindAllSubmatch(out, -1) {
			if n++; !have[string(found[1])+"@"+string(found[2])] {
				t.Errorf("the bill of %s has no %s", name, found[1])
			}
		}
		if n < 20 {
			t.Errorf("%s is made of %d modules", name, n)
		}
	}
	etcd := moduleVersion(t, filepath.Join("..", "etcd", "go.mod"), "go.etcd.io/etcd/server/v3")
	for name, programs := range map[string]map[string]string{
		"sandlot-apiserver-image.spdx.json": {"sandlot-apiserver": testVersion},
		"sandlot-etcd-image.spdx.json":      {"etcd": etcd, "etcdctl": etcd, "etcdutl": etcd},
	} {
		doc, err := spdxjson.Read(bytes.NewReader(files[name]))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		found := map[string]string{}
		for _, p := range doc.Packages {
			found[p.PackageName] = p.PackageVersion
		}
		for program, version := range programs {
			if found[program] != version {
				t.Errorf("%s has %s in version %q, want %q", name, program, found[program], version)
			}
		}
		if found[rootCAs] == "" || len(found) < 20 {
			t.Errorf("%s has %d packages, public CAs of %q", name, len(found), found[rootCAs])
		}
	}
	bills := 0
	for name, text := range files {
		if !strings.HasSuffix(name, ".spdx.json") {
			continue
		}
		bills++
		doc, err := spdxjson.Read(bytes.NewReader(text))
		if err == nil {
			err = spdxlib.ValidateDocument(doc)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if bills != 6+len(released) { // of the images and the programs
		t.Errorf("%d bills", bills)
	}
}

// moduleVersion is what a go.mod requires.
func moduleVersion(t *testing.T, file, module string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := modfile.Parse(file, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range parsed.Require {
		if r.Mod.Path == module {
			return r.Mod.Version
		}
	}
	t.Fatalf("%s requires no %s", file, module)
	return ""
}

func inArchive(t *testing.T, archive []byte, name string) []byte {
	t.Helper()
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	reader := tar.NewReader(zipped)
	for {
		header, err := reader.Next()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if header.Name == name {
			content, err := io.ReadAll(reader)
			if err != nil {
				t.Fatal(err)
			}
			return content
		}
	}
}

// TestSection: a release without notes is refused.
func TestSection(t *testing.T) {
	const changelog = "# Changelog\n\n## Unreleased\n\n- Later.\n\n## v0.2.0\n\n- This.\n- That.\n\n## v0.1.0\n"
	if got, err := section(changelog, "v0.2.0"); got != "- This.\n- That.\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, version := range []string{"v0.1.0", "v0.3.0"} {
		if got, err := section(changelog, version); err == nil || !strings.Contains(err.Error(), version) {
			t.Errorf("%s: %q, %v", version, got, err)
		}
	}
}

// TestNotesFirst: nothing is built for a release of which the changelog says nothing.
func TestNotesFirst(t *testing.T) {
	root, out := clone(t), t.TempDir()
	edit(t, filepath.Join(root, "CHANGELOG.md"), "## "+testVersion, "## v0.0.0")
	err := run(t.Context(), []string{"-root", root, "-dirty", "-o", out, "-version", testVersion}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "says nothing under") {
		t.Errorf("%v", err)
	}
	if made, err := os.ReadDir(out); err != nil || len(made) > 0 {
		t.Errorf("made were %v, %v", made, err)
	}
}

// TestParseRefuses what is no release.
func TestParseRefuses(t *testing.T) {
	for says, args := range map[string][]string{
		`"1.0" is not`:      {"-version", "1.0"},
		`"v1" is not`:       {"-version", "v1"},
		"v9.9.9 is to be":   {"-version", "v9.9.9"},
		"unknown argument":  {"-version", "v1.0.0", "now"},
		"-key: open absent": {"-version", "v1.0.0", "-key", "absent"},
	} {
		if _, err := parse(t.Context(), args); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
