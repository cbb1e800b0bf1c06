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

	"github.com/sigstore/sigstore/pkg/signature/dsse"

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
	text, err := json.Marshal(made)
	if err != nil {
		return err
	}
	if o.signer != nil {
		if text, err = dsse.WrapSigner(o.signer, payloadType).SignMessage(bytes.NewReader(text)); err != nil {
			return fmt.Errorf("signing %s: %w", provenanceFile, err)
		}
	}
	return os.WriteFile(o.file(provenanceFile), append(bytes.TrimSpace(text), '\n'), 0o644)
}

func provenanceOf(ctx context.Context, o *options, images []*image) (map[string]any, error) {
	toolchain, err := compile.Toolchain(ctx, o.root)
	if err != nil {
		return nil, err
	}
	sums, err := checksums(o.out)
	if err != nil {
		return nil, err
	}
	type object = map[string]any
	var subjects []object
	for line := range strings.Lines(sums) {
		digest, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		subjects = append(subjects, object{"name": name, "digest": object{"sha256": digest}})
	}
	for _, one := range images {
		subjects = append(subjects, object{"name": one.name, "digest": object{"sha256": strings.TrimPrefix(one.digest, "sha256:")}})
	}
	return object{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects, "predicateType": predicateType,
		"predicate": object{
			"buildDefinition": object{
				"buildType": buildType,
				"externalParameters": object{
					"version": o.version, "registry": o.registry, "platforms": o.imagePlatforms, "programPlatforms": o.programPlatforms,
				},
				"internalParameters": object{"go": toolchain},
				"resolvedDependencies": []object{{
					"uri": "git+https://github.com/sandlot-io/sandlot@refs/tags/" + o.version, "digest": object{"gitCommit": o.revision},
				}},
			},
			"runDetails": object{"builder": object{
				"id":      "https://github.com/sandlot-io/sandlot/tree/main/hack/release",
				"version": object{"host": runtime.GOOS + "/" + runtime.GOARCH},
			}},
		},
	}, nil
}
