// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

const (
	testVersion  = "v1.2.3-test"
	testRevision = "0123456789abcdef0123456789abcdef01234567"
	testEpoch    = "1700000000"
)

// programsOf is what each image holds; it runs the first.
var programsOf = map[string][]string{
	"sandlot":                    {"sandlot"},
	"sandlot-apiserver":          {"sandlot-apiserver"},
	"sandlot-controller-manager": {"sandlot-controller-manager"},
	"sandlot-etcd":               {"etcd", "etcdctl", "etcdutl"},
	"sandlot-gateway":            {"sandlot-gateway"},
	"sandlot-runtime":            {"sandlot-runtime"},
}

// forSandboxes is the image that no install runs: pod templates name it.
const forSandboxes = "ghcr.io/sandlot-io/sandlot-runtime"

// platforms are those that images are made for: the one of this machine, and in the long
// form of the tests, which compiles everything twice, all that there are.
func platforms() []string {
	if os.Getenv("SANDLOT_TEST_LONG") != "" {
		return []string{"linux/amd64", "linux/arm64"}
	}
	return []string{"linux/" + runtime.GOARCH}
}

// imagesVariable names a folder to keep what the tests make in, where those of other packages find
// the archive of all images. Empty keeps nothing.
const imagesVariable = "SANDLOT_IMAGES"

// once is the archive of all images, which the tests share.
var once struct {
	dir   string
	files archive
}

func TestMain(m *testing.M) {
	if once.dir = os.Getenv(imagesVariable); once.dir != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "sandlot-image-test-")
	if err != nil {
		panic(err)
	}
	once.dir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// built returns all images, made from the sources as they are.
func built(t *testing.T) archive {
	t.Helper()
	if once.files == nil {
		once.files = readArchive(t, build(t, filepath.Join(once.dir, "sandlot.tar"), filepath.Join("..", "..")))
	}
	return once.files
}

// build makes an archive of the sources below root.
func build(t *testing.T, out, root string, args ...string) string {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", testEpoch)
	args = append([]string{"-platforms", strings.Join(platforms(), ","), "-root", root, "-o", out, "-component", filepath.Join(filepath.Dir(out), "kustomization.yaml"), "-registry", "registry.example/team", "-tag", "t1",
		"-version", testVersion, "-revision", testRevision}, args...)
	var stdout bytes.Buffer
	start := time.Now()
	if err := run(context.Background(), args, &stdout); err != nil {
		t.Fatal(err)
	}
	t.Logf("built in %s:\n%s", time.Since(start).Round(time.Second), &stdout)
	return out
}

func TestNamesAndPlatforms(t *testing.T) {
	files := built(t)
	var got, tags []string
	for _, i := range files.images(t) {
		got = append(got, i.name+" "+i.platform)
		if platform := i.config.OS + "/" + i.config.Architecture; platform != i.platform {
			t.Errorf("%s for %s says that it is for %s", i.name, i.platform, platform)
		}
	}
	var want, wantTags []string
	for _, image := range slices.Sorted(maps.Keys(programsOf)) {
		name := "registry.example/team/" + image + ":t1"
		for _, platform := range platforms() {
			want = append(want, name+" "+platform)
			wantTags = append(wantTags, name+"-"+path.Base(platform))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("images: %q, want %q", got, want)
	}
	// What docker load reads, where it does not read OCI layouts.
	for _, entry := range decode[[]dockerImage](t, files["manifest.json"]) {
		tags = append(tags, entry.RepoTags...)
		for _, name := range append(entry.Layers, entry.Config) {
			if _, ok := files[name]; !ok {
				t.Errorf("%v: %s is not in the archive", entry.RepoTags, name)
			}
		}
	}
	if !slices.Equal(tags, wantTags) {
		t.Errorf("manifest.json: %q, want %q", tags, wantTags)
	}
}

func TestWhatIsInAnImage(t *testing.T) {
	for _, i := range built(t).images(t) {
		programs := programsOf[strings.TrimSuffix(path.Base(i.name), ":t1")]
		if i.config.Config.User != "65532:65532" || !slices.Equal(i.config.Config.Entrypoint, []string{"/" + programs[0]}) || i.config.Config.Cmd != nil ||
			!slices.Equal(i.config.Config.Env, []string{"PATH=/"}) {
			t.Errorf("%s: %+v", i.name, i.config.Config)
		}
		if labels := i.config.Config.Labels; labels["org.opencontainers.image.version"] != testVersion ||
			labels["org.opencontainers.image.revision"] != testRevision {
			t.Errorf("%s: labels %v", i.name, labels)
		}
		if got := i.config.Created.Unix(); got != 1700000000 {
			t.Errorf("%s was made at %d", i.name, got)
		}
		contents := map[string][]byte{}
		for _, layer := range i.layers {
			for header, content := range readTar(t, bytes.NewReader(layer)) {
				contents[header.Name] = content
				if header.Uid != 0 || header.Gid != 0 || header.Mode&0o6022 != 0 && header.Name != "tmp/" {
					t.Errorf("%s: %s belongs to %d:%d with mode %o", i.name, header.Name, header.Uid, header.Gid, header.Mode)
				}
				if header.ModTime.Unix() != 1700000000 {
					t.Errorf("%s: %s is of %s", i.name, header.Name, header.ModTime)
				}
				if mode := header.FileInfo().Mode(); mode.IsRegular() && mode&0o111 != 0 && !slices.Contains(programs, header.Name) {
					t.Errorf("%s: %s can be run", i.name, header.Name)
				}
			}
		}
		// Nothing but this: no shell above all.
		want := slices.Concat([]string{
			"etc/", "etc/group", "etc/passwd", "etc/ssl/", "etc/ssl/certs/", "etc/ssl/certs/ca-certificates.crt", "tmp/",
		}, programs)
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(contents)); !slices.Equal(got, want) {
			t.Errorf("%s holds %q, want %q", i.name, got, want)
		}
		for _, program := range programs {
			checkStatic(t, i, contents[program])
		}
		if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(contents["etc/ssl/certs/ca-certificates.crt"]) {
			t.Errorf("%s: the public CAs cannot be read", i.name)
		}
		if n := bytes.Count(contents["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN CERTIFICATE")); n < 50 {
			t.Errorf("%s: only %d public CAs", i.name, n)
		}
	}
}

func checkStatic(t *testing.T, i image, program []byte) {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatalf("%s: %v", i.name, err)
	}
	want := map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}[i.platform]
	if file.Machine != want {
		t.Errorf("%s for %s has a program for %s", i.name, i.platform, file.Machine)
	}
	if info, err := buildinfo.Read(bytes.NewReader(program)); err != nil || info.GoVersion != toolchain(t) {
		t.Errorf("%s for %s is not compiled by %s: %v, %v", i.name, i.platform, toolchain(t), info, err)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s for %s is not static", i.name, i.platform)
		}
	}
}

// toolchain is what go.mod names.
func toolchain(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^toolchain (\S+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatal("go.mod names no toolchain")
	}
	return string(found[1])
}

// The component names each image of the archive by digest, in place of the one that the install
// names, and all that the install names are there, and no others but the one for sandboxes.
func TestComponent(t *testing.T) {
	files := built(t)
	text, err := os.ReadFile(filepath.Join(once.dir, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var made component
	if err := yaml.UnmarshalStrict(text, &made); err != nil || made.Kind != "Component" {
		t.Fatalf("%v\n%s", err, text)
	}
	want := map[string]componentImage{}
	for _, named := range decode[index](t, files["index.json"]).Manifests {
		name := strings.TrimSuffix(named.Annotations["io.containerd.image.name"], ":t1")
		want["ghcr.io/sandlot-io/"+path.Base(name)] = componentImage{
			Name: "ghcr.io/sandlot-io/" + path.Base(name), NewName: name, Digest: named.Digest,
		}
	}
	tag, err := installTag(filepath.Join("..", ".."))
	if err != nil {
		t.Error(err)
	}
	installed := installedImages(t)
	if len(made.Images) != len(want) || len(installed) != len(want)-1 || want[forSandboxes].Name == "" {
		t.Errorf("%d images, the component has %d, and the install %q", len(want), len(made.Images), installed)
	}
	for _, one := range made.Images {
		if one != want[one.Name] {
			t.Errorf("%+v, want %+v", one, want[one.Name])
		}
	}
	for _, name := range installed {
		if _, ok := want[strings.TrimSuffix(name, ":"+tag)]; !ok {
			t.Errorf("the install names %s; the tag is %s", name, tag)
		}
	}
}

// installedImages are the images that the manifests for kustomize name.
func installedImages(t *testing.T) []string {
	t.Helper()
	deploy := filepath.Join("..", "..", "artifacts", "deploy")
	files, err := filepath.Glob(filepath.Join(deploy, "*", "rendered.yaml"))
	components, globErr := filepath.Glob(filepath.Join(deploy, "components", "*", "rendered.yaml"))
	if err := errors.Join(err, globErr); err != nil {
		t.Fatal(err)
	}
	var images []string
	for _, file := range append(files, components...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^ +image: (\S+)$`).FindAllSubmatch(text, -1) {
			images = append(images, string(found[1]))
		}
	}
	slices.Sort(images)
	return slices.Compact(images)
}

// Another checkout in another folder, which git does not know, gives the same
// bytes. One platform does: the others are made in the same way.
func TestReproducible(t *testing.T) {
	checkout := filepath.Join(t.TempDir(), "elsewhere")
	root := filepath.Join("..", "..")
	for _, name := range []string{"apis", "cmd", "pkg", "registry", "go.mod", "go.sum", "hack/etcd"} {
		if err := copyTo(filepath.Join(root, name), filepath.Join(checkout, name)); err != nil {
			t.Fatal(err)
		}
	}
	again := readArchive(t, build(t, filepath.Join(t.TempDir(), "again.tar"), checkout, "-platforms", platforms()[0]))
	digests := map[string]string{}
	for _, i := range built(t).images(t) {
		digests[i.name+" "+i.platform] = i.digest
	}
	for _, i := range again.images(t) {
		if want := digests[i.name+" "+i.platform]; i.digest != want {
			t.Errorf("%s for %s is %s and %s", i.name, i.platform, want, i.digest)
		}
	}
}

func copyTo(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}
