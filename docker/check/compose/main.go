// Command compose says whether a compose file can be used: it loads it with the library that `docker compose config`
// loads it with (schema, merges, interpolation, references between services), every profile included.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func check(path string) error {
	options, err := cli.NewProjectOptions([]string{path}, cli.WithProfiles([]string{"*"}), cli.WithConsistency(true))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d services\n", path, len(project.Services))
	return nil
}

func main() {
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
