// The etcd server, as its own release builds it: there is no other way to it than Go's modules.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
