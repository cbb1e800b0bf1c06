// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command protobuf generates Go beside .proto files: messages, and services of connect. It
// needs no protoc: it compiles the files itself, and runs the plugins that go.mod pins.
//
// usage: protobuf ROOT FILE...
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// plugins are in the folder of GOBIN.
var plugins = []string{"protoc-gen-go", "protoc-gen-connect-go"}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: protobuf ROOT FILE...")
		os.Exit(2)
	}
	if err := generate(context.Background(), os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "protobuf: %v\n", err)
		os.Exit(1)
	}
}

func generate(ctx context.Context, root string, files []string) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(ctx, files...)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: files, Parameter: proto.String("paths=source_relative")}
	seen := map[string]bool{}
	for _, file := range compiled {
		request.ProtoFile = withImports(request.ProtoFile, file, seen)
	}
	input, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	for _, plugin := range plugins {
		if err := run(ctx, root, plugin, input); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return nil
}

// withImports appends a file behind those that it imports, each once.
func withImports(all []*descriptorpb.FileDescriptorProto, file protoreflect.FileDescriptor, seen map[string]bool) []*descriptorpb.FileDescriptorProto {
	if seen[file.Path()] {
		return all
	}
	seen[file.Path()] = true
	for i := range file.Imports().Len() {
		all = withImports(all, file.Imports().Get(i).FileDescriptor, seen)
	}
	return append(all, protoutil.ProtoFromFileDescriptor(file))
}

func run(ctx context.Context, root, plugin string, input []byte) error {
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("GOBIN"), plugin))
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, file := range response.File {
		name := filepath.Join(root, filepath.FromSlash(file.GetName()))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
