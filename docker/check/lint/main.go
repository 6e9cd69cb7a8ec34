// Command lint says what BuildKit's own checks have against the Dockerfiles it is given: what `docker build --check`
// prints, without an engine. Exit code 1 when there is anything.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerui"
	digest "github.com/opencontainers/go-digest"
	ocispecs "github.com/opencontainers/image-spec/specs-go/v1"
)

// anyImage answers for every base image with an empty configuration, so that nothing is fetched.
type anyImage struct{}

func (anyImage) ResolveImageConfig(_ context.Context, ref string, opt sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	image := ocispecs.Image{Platform: ocispecs.Platform{OS: "linux", Architecture: "amd64"}}
	encoded, err := json.Marshal(image)
	return ref, digest.FromBytes(encoded), encoded, err
}

// sourceMap names the file that a finding is in; it is of no build, so its definition is empty.
func sourceMap(path string, text []byte) *llb.SourceMap {
	named := llb.NewSourceMap(nil, path, "Dockerfile", text)
	named.Definition = &llb.Definition{}
	return named
}

// lint reports whether there is nothing to say about a file, having said it otherwise.
func lint(path string) (bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	options := dockerfile2llb.ConvertOpt{
		Config:       dockerui.Config{LinterConfig: &linter.Config{}},
		SourceMap:    sourceMap(path, text),
		MetaResolver: anyImage{},
	}
	found, err := dockerfile2llb.DockerfileLint(context.Background(), text, options)
	if err != nil {
		return false, err
	}
	if found.Error != nil {
		return false, fmt.Errorf("%s: %s", path, found.Error.Message)
	}
	return len(found.Warnings) == 0, found.PrintTo(os.Stdout, nil)
}

func main() {
	code := 0
	for _, path := range os.Args[1:] {
		clean, err := lint(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		if !clean || err != nil {
			code = 1
		}
	}
	os.Exit(code)
}
