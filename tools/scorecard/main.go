// Runs checks of OpenSSF Scorecard on a directory, without a forge and without the network: main DIR CHECK...
// Scorecard's own command asks the site of OSS-Fuzz even for a local directory.
package main

import (
	"context"
	"log"
	"os"

	"github.com/ossf/scorecard/v5/clients"
	"github.com/ossf/scorecard/v5/clients/localdir"
	docs "github.com/ossf/scorecard/v5/docs/checks"
	sclog "github.com/ossf/scorecard/v5/log"
	"github.com/ossf/scorecard/v5/pkg/scorecard"
)

// withoutOSSFuzz stands for OSS-Fuzz, where this project is not.
type withoutOSSFuzz struct{ clients.RepoClient }

func (withoutOSSFuzz) Search(clients.SearchRequest) (clients.SearchResponse, error) {
	return clients.SearchResponse{}, nil
}

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}

// run writes the results as JSON, version 2 of Scorecard's format.
func run(directory string, checks []string) error {
	repo, err := localdir.MakeLocalDirRepo(directory)
	if err != nil {
		return err
	}
	result, err := scorecard.Run(context.Background(), repo,
		scorecard.WithChecks(checks),
		scorecard.WithOSSFuzzClient(withoutOSSFuzz{}),
		scorecard.WithLogLevel(sclog.WarnLevel))
	if err != nil {
		return err
	}
	texts, err := docs.Read()
	if err != nil {
		return err
	}
	return result.AsJSON2(os.Stdout, texts, &scorecard.AsJSON2ResultOption{Details: true, LogLevel: sclog.InfoLevel})
}
