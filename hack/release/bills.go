// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
)

// rootCAs is the module with the public CAs of the images.
const rootCAs = "golang.org/x/crypto/x509roots/fallback"

// writeBills writes a bill of materials, in SPDX, for each image and each archive of a
// program.
func writeBills(ctx context.Context, o *options, images []*image, programs []program) error {
	date, err := o.date(ctx)
	if err != nil {
		return err
	}
	cas, err := output(ctx, filepath.Join(o.root, "hack", "image"), []string{"GOWORK=off"}, "go", "list", "-m", "-f", "{{.Version}}", rootCAs)
	if err != nil {
		return err
	}
	for _, one := range images {
		bill := newBill(o, date, one.short+"-image")
		top := bill.add(&spdx.Package{
			PackageName: one.name, PackageVersion: o.version, PrimaryPackagePurpose: "CONTAINER",
			PackageDownloadLocation: "NOASSERTION", PackageLicenseDeclared: "Apache-2.0",
			PackageChecksums:          []common.Checksum{{Algorithm: common.SHA256, Value: strings.TrimPrefix(one.digest, "sha256:")}},
			PackageExternalReferences: purl("pkg:oci/" + one.short + "@" + strings.Replace(one.digest, ":", "%3A", 1) + "?repository_url=" + one.name),
		})
		bill.relate("DOCUMENT", common.TypeRelationshipDescribe, top)
		bill.relate(top, common.TypeRelationshipContains, bill.addModule(rootCAs, cas, ""))
		for _, p := range one.programs {
			if err := bill.addProgram(top, p, o.version); err != nil {
				return fmt.Errorf("image %s: %w", one.name, err)
			}
		}
		if err := bill.write(o.file(one.short + "-image.spdx.json")); err != nil {
			return err
		}
	}
	for _, p := range programs {
		bill := newBill(o, date, p.archive)
		if err := bill.addProgram("DOCUMENT", p, o.version); err != nil {
			return fmt.Errorf("%s: %w", p.archive, err)
		}
		if err := bill.write(o.file(strings.TrimSuffix(p.archive, ".tar.gz") + ".spdx.json")); err != nil {
			return err
		}
	}
	return nil
}

// bill is a bill of materials that is being made.
type bill struct {
	*spdx.Document
	modules map[string]common.ElementID
}

func newBill(o *options, date time.Time, name string) *bill {
	return &bill{modules: map[string]common.ElementID{}, Document: &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: name, DocumentNamespace: downloads + o.version + "/" + name + ".spdx.json#" + o.revision,
		CreationInfo: &spdx.CreationInfo{
			Created:  date.Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "hack/release"}, {CreatorType: "Organization", Creator: "The Sandlot Authors"}},
		},
	}}
}

// add adds a package, and returns its name in the bill.
func (b *bill) add(p *spdx.Package) common.ElementID {
	p.PackageSPDXIdentifier = common.ElementID(fmt.Sprintf("Package-%d", len(b.Packages)))
	p.IsFilesAnalyzedTagPresent = true // and false
	if p.PackageLicenseConcluded == "" {
		p.PackageLicenseConcluded = "NOASSERTION"
	}
	if p.PackageLicenseDeclared == "" {
		p.PackageLicenseDeclared = "NOASSERTION"
	}
	p.PackageCopyrightText = "NOASSERTION"
	b.Packages = append(b.Packages, p)
	return p.PackageSPDXIdentifier
}

func (b *bill) relate(from common.ElementID, how string, to common.ElementID) {
	b.Relationships = append(b.Relationships, &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: from}, RefB: common.DocElementID{ElementRefID: to}, Relationship: how,
	})
}

// addModule adds a module of Go once.
func (b *bill) addModule(path, version, sum string) common.ElementID {
	if id, ok := b.modules[path+"@"+version]; ok {
		return id
	}
	p := &spdx.Package{
		PackageName: path, PackageVersion: version, PrimaryPackagePurpose: "LIBRARY",
		PackageDownloadLocation: "https://proxy.golang.org/" + path + "/@v/" + version + ".zip",
	}
	if path == "stdlib" {
		p.PackageDownloadLocation = "https://go.dev/dl/"
	}
	p.PackageExternalReferences = purl("pkg:golang/" + path + "@" + version)
	if sum != "" {
		p.PackageComment = "go.sum: " + sum
	}
	id := b.add(p)
	b.modules[path+"@"+version] = id
	return id
}

// addProgram adds a program and all that is compiled into it, which the program itself says.
func (b *bill) addProgram(in common.ElementID, p program, version string) error {
	info, err := buildinfo.Read(bytes.NewReader(p.content))
	if err != nil {
		return fmt.Errorf("%s for %s: %w", p.name, p.platform, err)
	}
	parts := info.Deps
	if info.Main.Sum != "" { // another project's module, such as etcd; ours is a folder
		version = info.Main.Version
		parts = append([]*debug.Module{&info.Main}, parts...)
	}
	id := b.add(&spdx.Package{
		PackageName: p.name, PackageVersion: version, PackageFileName: p.name, PrimaryPackagePurpose: "APPLICATION",
		PackageDownloadLocation: "NOASSERTION", PackageLicenseDeclared: "Apache-2.0", PackageComment: "for " + p.platform,
		PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: digestOf(p.content)}},
	})
	how := common.TypeRelationshipContains
	if in == "DOCUMENT" {
		how = common.TypeRelationshipDescribe
	}
	b.relate(in, how, id)
	b.relate(id, common.TypeRelationshipContains, b.addModule("stdlib", strings.TrimPrefix(info.GoVersion, "go"), ""))
	for _, module := range parts {
		if module.Replace != nil {
			if module.Replace.Version == "" {
				continue // a folder of this repository
			}
			module = module.Replace
		}
		b.relate(id, common.TypeRelationshipContains, b.addModule(module.Path, module.Version, module.Sum))
	}
	return nil
}

func (b *bill) write(file string) error {
	var text bytes.Buffer
	if err := spdxjson.Write(b.Document, &text, spdxjson.Indent(" ")); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(file), err)
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

func purl(locator string) []*spdx.PackageExternalReference {
	return []*spdx.PackageExternalReference{{Category: "PACKAGE-MANAGER", RefType: "purl", Locator: locator}}
}
