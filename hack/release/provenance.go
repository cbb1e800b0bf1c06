// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	statement "github.com/in-toto/attestation/go/v1"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sandlot-io/sandlot/hack/image/compile"
)

const (
	// provenanceFile says of what, and by what, everything was made: SLSA provenance, in an
	// envelope (DSSE) that is signed where there is a key.
	provenanceFile = "provenance.intoto.jsonl"
	// predicateType is that of SLSA provenance.
	predicateType = "https://slsa.dev/provenance/v1"
	// payloadType is that of an in-toto statement.
	payloadType = "application/vnd.in-toto+json"
	// buildType says how to read the parameters.
	buildType = "https://github.com/sandlot-io/sandlot/blob/main/docs/release.md"
)

// writeProvenance writes the provenance of all that was made so far.
func writeProvenance(ctx context.Context, o *options, images []*image) error {
	made, err := provenanceOf(ctx, o, images)
	if err != nil {
		return err
	}
	text, err := stableJSON(made)
	if err != nil {
		return fmt.Errorf("%s: %w", provenanceFile, err)
	}
	if o.signer != nil {
		if text, err = dsse.WrapSigner(o.signer, payloadType).SignMessage(bytes.NewReader(text)); err != nil {
			return fmt.Errorf("signing %s: %w", provenanceFile, err)
		}
	}
	return os.WriteFile(o.file(provenanceFile), append(bytes.TrimSpace(text), '\n'), 0o644)
}

func provenanceOf(ctx context.Context, o *options, images []*image) (*statement.Statement, error) {
	toolchain, err := compile.Toolchain(ctx, o.root)
	if err != nil {
		return nil, err
	}
	parameters, err := structpb.NewStruct(map[string]any{
		"version": o.version, "registry": o.registry, "platforms": o.imagePlatforms, "programPlatforms": o.programPlatforms,
	})
	if err != nil {
		return nil, err
	}
	internal, err := structpb.NewStruct(map[string]any{"go": toolchain})
	if err != nil {
		return nil, err
	}
	predicate := &provenance.Provenance{
		BuildDefinition: &provenance.BuildDefinition{
			BuildType: buildType, ExternalParameters: parameters, InternalParameters: internal,
			ResolvedDependencies: []*statement.ResourceDescriptor{{
				Uri: "git+https://github.com/sandlot-io/sandlot@refs/tags/" + o.version, Digest: map[string]string{"gitCommit": o.revision},
			}},
		},
		RunDetails: &provenance.RunDetails{Builder: &provenance.Builder{Id: "https://github.com/sandlot-io/sandlot/tree/main/hack/release", Version: map[string]string{"host": runtime.GOOS + "/" + runtime.GOARCH}}},
	}
	if err := predicate.Validate(); err != nil {
		return nil, fmt.Errorf("provenance: %w", err)
	}
	text, err := protojson.Marshal(predicate)
	if err != nil {
		return nil, err
	}
	asStruct := &structpb.Struct{}
	if err := protojson.Unmarshal(text, asStruct); err != nil {
		return nil, err
	}
	s := &statement.Statement{Type: statement.StatementTypeUri, PredicateType: predicateType, Predicate: asStruct}
	sums, err := checksums(o.out)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(sums) {
		digest, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		s.Subject = append(s.Subject, &statement.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": digest}})
	}
	for _, one := range images {
		s.Subject = append(s.Subject, &statement.ResourceDescriptor{Name: one.name, Digest: map[string]string{"sha256": strings.TrimPrefix(one.digest, "sha256:")}})
	}
	return s, s.Validate()
}

// stableJSON is the JSON of a statement. That of protojson has spaces here and there, so that
// nobody relies on its bytes.
func stableJSON(s *statement.Statement) ([]byte, error) {
	text, err := protojson.Marshal(s)
	if err != nil {
		return nil, err
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}
