// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/seed81659283/nodeagent/cri/criserver"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/cri/remote"
)

// A runtime in memory, served on a unix socket, as crictl would list it.
func ExampleServer_Serve() {
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "cri.sock"))
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	server := criserver.New(critest.New(critest.Options{}), criserver.Options{})
	var wg sync.WaitGroup
	wg.Go(func() { fmt.Println("served:", server.Serve(ctx, l)) })

	client, err := remote.Dial(l.Addr().String(), remote.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("checked:", client.Check(ctx))
	fmt.Println("closed:", client.Close())
	stop()
	wg.Wait()
	// Output:
	// checked: <nil>
	// closed: <nil>
	// served: <nil>
}
